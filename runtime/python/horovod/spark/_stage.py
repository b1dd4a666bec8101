"""The stage of Spark whose tasks start a job's agents, on a thread of its own."""

import re
import sys
import threading
from typing import Callable, List, Optional

from horovod.spark import _session

# Spark's exception contains the error that Python raised in a task as a line of its own, after a traceback.
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*(?:Error|Exception|Interrupt|Refused)): (.+)$", re.MULTILINE)
# What Spark's errors contain when somebody has cancelled the stage or stopped the session.
_WANTED_END = re.compile(r"cancel|interrupted|SparkContext (?:was|has been) shut ?down|stopped SparkContext", re.IGNORECASE)
# Java puts the name of the exception before its message.
_CLASS = re.compile(r"^:? *(?:[a-z]\w*\.)+\w+(?:Exception|Error): *")
_JAVA = ("java.", "org.apache.", "py4j.", "Caused by")
# The driver has the package, or this would not run.
_NO_PACKAGE = re.compile(r"ModuleNotFoundError: No module named '(?:horovod|sparkdl)")
# What the task of an agent that has failed raises (horovod/runner/_agent.py).
_AGENT_ENDED = "RuntimeError: hvdrun-agent of partition "
_OTHER_PYTHON = (
    "; Spark's tasks run another Python than the driver. Set PYSPARK_PYTHON, before the session begins, to a Python of "
    f"the executors that has hvdrun installed; the driver's is {sys.executable}"
)


def _raised_in_a_task(error: BaseException) -> Optional[str]:
    """What Python raised in one of the tasks, in one line."""
    for found in _RAISED.finditer(str(error).strip()):
        if not found.group(0).startswith(_JAVA) and found.group(1) != "PythonException":
            return f"{found.group(1)}: {found.group(2)}".strip()
    return None


def reason_of(error: BaseException) -> str:
    """One line that says why Spark ended the tasks: what Python raised in one, else the first line of Spark's own text."""
    raised = _raised_in_a_task(error)
    if raised is not None:
        return raised + (_OTHER_PYTHON if _NO_PACKAGE.match(raised) else "")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if "Job aborted" in line or "cancelled" in line), lines[0] if lines else "")
    return _CLASS.sub("", told).lstrip(": ") or type(error).__name__


def is_wanted_end(error: Optional[BaseException]) -> bool:
    """Whether Spark ended the tasks because somebody wanted that."""
    return error is not None and _WANTED_END.search(str(error)) is not None


def is_loss(error: BaseException) -> bool:
    """Whether a task was lost with its executor, or its agent ended when it had lost hvdrun's."""
    raised = _raised_in_a_task(error)
    return not is_wanted_end(error) and (raised is None or raised.startswith(_AGENT_ENDED))


class Stage(threading.Thread):
    """It ends when all its tasks have."""

    def __init__(self, session: _session.Session, tasks: int, task: _session.Task, on_over: Callable[[str], None],
                 is_gang: bool = True) -> None:  # fmt: skip
        super().__init__(name="hvd-spark-stage", daemon=True)
        self._session = session
        self._tasks = tasks
        self._task = task
        self._on_over = on_over
        self._is_gang = is_gang
        self._is_cancelled = False  # by end(), so that what Spark says of it is nobody's wish
        self.error: Optional[BaseException] = None
        self.results: List[bytes] = []

    def run(self) -> None:
        try:
            self.results = self._session.run_stage(self._tasks, self._task, self._is_gang)
            self._on_over("the tasks of Spark have ended")
        except BaseException as error:  # also what Java raised
            if self._is_cancelled:
                return
            self.error = error
            self._on_over(f"Spark ended the tasks: {reason_of(error)}")

    def end(self, patience_s: float, cancel_s: float) -> None:
        """Waits for the end; when it does not come, asks for it, and waits again."""
        self.join(patience_s)
        if self.is_alive():
            self._is_cancelled = True
            try:
                self._session.cancel()
            except Exception:
                pass  # the session may have been stopped, and its tasks with it
            self.join(cancel_s)
