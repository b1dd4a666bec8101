"""One job of horovod.spark.run: hvdrun on this machine, a stage of Spark whose tasks start its agents."""

import os
import socket
from typing import Any, Callable, Dict, List, Optional, Tuple

from horovod.runner import _job as runner
from horovod.runner._exchange import Lines
from horovod.spark import _session, _task

# For the tasks to end after hvdrun has: their agents have ended by then.
_STAGE_END_S = 10.0


class Job:
    """Run once."""

    def __init__(
        self,
        session: _session.Session,
        num_proc: int,
        words: List[str],
        environment: Dict[str, str],
        executable: Optional[str],
    ) -> None:
        self._session = session
        self._num_proc = num_proc
        self._words = words
        self._environment = environment
        self._executable = executable
        self._stage: Optional[_session.Stage] = None
        # The text of a message that a rank sends with log_to_driver().
        self.on_log: Callable[[str], None] = print

    def run(self, fn: Callable[..., Any], args: Tuple, kwargs: Dict[str, Any], stdout: Any, stderr: Any) -> List[Any]:
        """What horovod.spark.run returns and raises."""
        exchange = Lines(runner.make_payload(fn, args, kwargs))
        exchange.on_log = lambda message: self.on_log(message)
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                process = runner.start(self._argv(exchange, theirs.fileno()), {**os.environ, **exchange.environment},
                                       pass_fds=(theirs.fileno(),))  # fmt: skip
            code, last_words = runner.run_to_end(process, exchange, stdout, stderr, lambda: self._start_stage(ours))
        if self._stage is not None:
            self._stage.end(_STAGE_END_S)
        replies = [exchange.result(rank) for rank in range(self._num_proc)]
        try:
            return runner.results_of("horovod.spark.run", replies, code, last_words)
        except RuntimeError as error:
            spark_error = self._stage.error if self._stage is not None else None
            if spark_error is not None and error.__cause__ is None:
                raise error from spark_error
            raise

    def _argv(self, exchange: Lines, driver_fd: int) -> List[str]:
        count = self._num_proc
        # The host list says only whether executors call loopback; where ranks are is known when all have called.
        hosts = f"localhost:{count}" if self._session.is_local else f"executors:{count}"
        words = ["--launcher", "spark", "--driver-fd", str(driver_fd), "-np", str(count), "-H", hosts, *self._words]
        passed = [word for name in exchange.environment for word in ("-x", name)]
        passed += [word for name, value in self._environment.items() for word in ("-x", f"{name}={value}")]
        python = f'exec "{self._executable or f"${_task.PYTHON}"}" -m horovod.runner.run_task'
        return [runner.find_program("hvdrun"), *words, *passed, "sh", "-c", python]

    def _start_stage(self, driver: socket.socket) -> None:
        line = b""
        while not line.endswith(b"\n"):
            piece = driver.recv(4096)
            if not piece:
                return  # hvdrun has ended, and says why
            line += piece
        word, key, count, *place = line.decode().split()
        assert word == "call" and int(count) == self._num_proc, "hvdrun and this package are of different versions"

        def tell(text: str) -> None:
            try:
                driver.sendall(f"over {text[:1000]}\n".encode())
            except OSError:
                pass  # hvdrun has ended already

        order = _task.Order(key, self._num_proc, place)
        self._stage = _session.Stage(self._session, self._num_proc, order, tell)
        self._stage.start()
