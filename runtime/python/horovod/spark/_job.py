"""One job of horovod.spark.run: hvdrun, and a stage of Spark whose tasks start its agents."""

import dataclasses
import os
import pathlib
import pickle
import sys
import tempfile
from functools import partial
from typing import Any, Callable, List, Optional, Union

import horovod
from horovod.runner import _job as runner
from horovod.runner._agent import Order
from horovod.runner._launch import Launch, Outcome
from horovod.spark import _relay, _seats, _session, _stage, _task

# The time in seconds for the tasks to end after hvdrun has; their agents have ended by then.
_STAGE_END_S = 10.0
# After a failure, Spark has this many seconds to report its error, as the cause of our exception. Then the stage is
# cancelled.
_SPARKS_WORD_S = 1.0
_CANCEL_S = 0.25
# hvdrun's report contains this if a node fell silent (launcher/sessions/node_session.cpp). Spark itself notices that two
# minutes later, so there is no error of Spark's to wait for.
_SILENT_NODE = "no sign of life from its agent"
# An agent's message contains this if the driver's machine cannot be called (launcher/agent/dial.cpp).
_UNREACHABLE = "cannot call hvdrun back"
# hvdrun's exit codes of a job that never ran: invalid arguments, hosts that do not answer, ranks that cannot be
# started.
_NEVER_RAN = (240, 241, 242)
# That of a job whose ranks have changed too often (--reset-limit).
_RESET_LIMIT = 247

LAUNCHERS = ("auto", "driver", "task0")


class Job:
    """Run once."""

    def __init__(self, session: _session.Session, launch: Launch, launcher: str) -> None:
        self._session = session
        self._launch = launch
        self._launcher = launcher
        self._stage: Union[_stage.Stage, _seats.Seats, None] = None
        self._outcome: Optional[Outcome] = None
        self._was_lost = False  # a task of a job whose hvdrun ran in one; what hvdrun found is then lost, too
        # The text of a message that a rank sends with log_to_driver().
        self.on_log: Callable[[str], None] = print

    @property
    def may_run_again(self) -> bool:
        """After a failure: whether ranks ran, and nobody has cancelled them."""
        is_cancelled = self._stage is not None and _stage.is_wanted_end(self._stage.error)
        ran = self._outcome is not None and self._outcome.code not in _NEVER_RAN
        return (ran or self._was_lost) and not is_cancelled

    def run(self, stdout: Any, stderr: Any) -> List[Any]:
        """What horovod.spark.run returns and raises."""
        try:
            self._outcome = self._run(stdout, stderr)
        except BaseException:  # Ctrl-C too: tasks that wait for a slot must not start later
            if self._stage is not None:
                self._stage.end(0, _CANCEL_S)
            raise
        try:
            return self._results_of(self._outcome)
        except RuntimeError as error:
            spark_error = self._stage.error if self._stage is not None else None
            if spark_error is not None and error.__cause__ is None:
                raise error from spark_error
            raise

    def _run(self, stdout: Any, stderr: Any) -> Outcome:
        outcome = self._run_here(stdout, stderr) if self._launcher != "task0" else None
        if outcome is None or self._has_no_way_back():
            outcome = self._run_in_task(stdout, stderr)
        return outcome

    def _results_of(self, outcome: Outcome) -> List[Any]:
        return runner.results_of("horovod.spark.run", outcome.replies, outcome.code, outcome.last_words)

    def _run_here(self, stdout: Any, stderr: Any) -> Outcome:
        def start_tasks(order: Order, tell: Callable[[str], None]) -> None:
            self._stage = _stage.Stage(self._session, self._launch.num_proc, partial(_task.run_agent, order), tell)
            self._stage.start()

        outcome = self._launch.run(dict(os.environ), stdout, stderr, lambda text: self.on_log(text), start_tasks)
        if self._stage is not None:
            patience_s, cancel_s = (_SPARKS_WORD_S, _CANCEL_S) if outcome.has_failed else (_STAGE_END_S,) * 2
            self._stage.end(0.0 if _SILENT_NODE in outcome.last_words else patience_s, cancel_s)
        return outcome

    def _has_no_way_back(self) -> bool:
        """Whether the tasks have ended because they cannot call this machine, and one of them could be called instead."""
        is_auto = self._launcher == "auto" and not self._session.is_dynamic
        error = self._stage.error if self._stage is not None else None
        return is_auto and error is not None and _UNREACHABLE in str(error)

    def _run_in_task(self, stdout: Any, stderr: Any) -> Outcome:
        self._launch.take_settings()
        order = _relay.RelayedOrder(self._launch, horovod.hvdrun_version)
        self._stage = _stage.Stage(self._session, self._launch.num_proc, order.run, lambda _: None)
        self._stage.start()
        self._stage.join()
        if self._stage.error is not None:
            self._was_lost = _stage.is_loss(self._stage.error) and _UNREACHABLE not in str(self._stage.error)
            raise RuntimeError(
                f"horovod.spark.run: Spark ended the tasks: {_stage.reason_of(self._stage.error)}; the report of hvdrun is "
                "in the standard error of the executor that ran partition 0"
            ) from self._stage.error
        relayed = pickle.loads(self._stage.results[0])
        for text, stream in ((relayed.stdout, stdout or sys.stdout), (relayed.stderr, stderr or sys.stderr)):
            if text:
                stream.write(text)
        for message in relayed.logs:
            self.on_log(message)
        return relayed.outcome


class ElasticJob(Job):
    """A job of `least` to `most` ranks, which come and go with Spark's executors."""

    def __init__(self, session: _session.Session, launch: Launch, least: int, most: int) -> None:
        super().__init__(session, launch, "driver")
        self._least = least
        self._most = most

    @property
    def may_run_again(self) -> bool:
        if isinstance(self._stage, _seats.Seats) and self._stage.was_lost_early:
            return True
        return super().may_run_again and self._outcome.code != _RESET_LIMIT

    def _run(self, stdout: Any, stderr: Any) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="hvd-spark-") as folder:  # mode 0700
            join_file = pathlib.Path(folder) / "join"
            launch = dataclasses.replace(self._launch, words=[*self._launch.words, "--join-file", str(join_file)])

            def start_tasks(order: Order, tell: Callable[[str], None]) -> None:
                self._stage = _seats.Seats(self._session, order, self._most, join_file, tell, stderr or sys.stderr)
                self._stage.start()

            outcome = launch.run(dict(os.environ), stdout, stderr, lambda text: self.on_log(text), start_tasks)
            if self._stage is not None:
                self._stage.end(_SPARKS_WORD_S, _CANCEL_S)
            return outcome

    def _results_of(self, outcome: Outcome) -> List[Any]:
        return runner.elastic_results_of("horovod.spark.run_elastic", outcome.replies, self._least, outcome.code,
                                         outcome.last_words)  # fmt: skip
