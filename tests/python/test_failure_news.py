"""What a rank tells its agent of its own failure, and when. The agent is agent.py's, which speaks the wire by itself."""

import os
import subprocess
import time

import pytest
from agent import Agent
from hvdrun import LIBHVD, PYTHON, ROOT
from patience import PATIENCE

ENDS, FOLLOWS, NOTICED, OVER = range(4)

BEGIN = """
import os, sys, threading
from horovod.common import basics, _lib
from horovod.common.exceptions import HorovodInternalError
basics.init()
def lost():
    raise HorovodInternalError("rank 1 was lost", _lib.LOST_PEER)
"""


def told_by(tmp_path, body, count, kind_of_agent=Agent):
    """What a job of one rank tells, after at least `count` words of it have come, and its exit code."""
    agent = kind_of_agent(str(tmp_path / "agent"), 1)
    names = ("RANK", "LOCAL_RANK", "CROSS_RANK", "NODE_INDEX")
    sizes = ("SIZE", "LOCAL_SIZE", "CROSS_SIZE", "NODE_COUNT")
    identity = {**{f"HVD_{name}": "0" for name in names}, **{f"HVD_{name}": "1" for name in sizes}}
    environment = {**os.environ, **identity, "HVD_AGENT_SOCKET": agent.path, "HVD_AGENT_TOKEN": agent.token,
                   "HVD_LIBRARY": LIBHVD, "PYTHONPATH": str(ROOT / "runtime/python")}
    try:
        done = subprocess.run([*PYTHON, "-c", BEGIN + body], env=environment, capture_output=True, text=True, timeout=PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while len(agent.failures) < count and time.monotonic() < deadline:
            time.sleep(0.01)  # sleeps: its words are in the socket, and the agent has a thread of its own
    finally:
        agent.stop()
    assert agent.errors == [], done.stderr
    return [(kind, code, what) for _, kind, _, code, what in agent.failures], done


@pytest.mark.parametrize("body, kind, what", [
    ("def f():\n    raise ValueError('a\\nb')\nf()", ENDS, "ValueError: a, <string>:9 in f"),
    ("lost()", FOLLOWS, "horovod.common.exceptions.HorovodInternalError: rank 1 was lost, <string>:7 in lost"),
    ("try:\n    lost()\nexcept Exception as e:\n    raise OSError('gave up') from e", FOLLOWS,
     "OSError: gave up, <string>:11 in <module>"),
    ("try:\n    lost()\nexcept Exception:\n    raise OSError('gave up') from None", FOLLOWS,
     "OSError: gave up, <string>:11 in <module>"),
    ("class UnknownError(Exception):\n    __module__ = 'tensorflow.python'\nraise UnknownError('HorovodAllreduce: a rank is gone')", FOLLOWS,
     "tensorflow.python.UnknownError: HorovodAllreduce: a rank is gone, <string>:10 in <module>"),
    ("class JaxRuntimeError(Exception):\n    __module__ = 'jax.errors'\nraise JaxRuntimeError('UNKNOWN: [hvd 7] shut down')", FOLLOWS,
     "jax.errors.JaxRuntimeError: UNKNOWN: [hvd 7] shut down, <string>:10 in <module>"),
    ("class JaxRuntimeError(Exception):\n    __module__ = 'jax.errors'\nraise JaxRuntimeError('UNKNOWN: [hvd 9] memory')", ENDS,
     "jax.errors.JaxRuntimeError: UNKNOWN: [hvd 9] memory, <string>:10 in <module>"),
    ("sys.excepthook = lambda *_: None\nraise KeyError('x')", NOTICED, "KeyError: 'x', <string>:9 in <module>"),
    ("class Odd(Exception):\n    def __str__(self):\n        raise OSError\nraise Odd", ENDS,
     "Odd: <exception str() failed>, <string>:11 in <module>"),
])
def test_an_exception_that_nobody_catches_is_told(tmp_path, body, kind, what):
    told, done = told_by(tmp_path, body, 1)
    assert told == [(kind, 1, what)], done.stderr
    assert done.returncode == 1


def test_it_is_told_before_threads_and_exit_functions_have_ended(tmp_path):
    body = ("import atexit, pathlib, time\n"
            f"heard = pathlib.Path({str(tmp_path / 'heard')!r})\n"
            "def wait():\n"
            "    while not heard.exists(): time.sleep(0.01)\n"
            "threading.Thread(target=wait).start()\n"
            "raise ValueError\n")

    class Hearing(Agent):
        def _handle(self, peer, kind, content):
            super()._handle(peer, kind, content)
            if self.failures:
                (tmp_path / "heard").touch()  # the rank's thread ends only now

    told, done = told_by(tmp_path, body, 1, Hearing)
    assert [kind for kind, _, _ in told] == [ENDS] and done.returncode == 1, done.stderr


def test_an_exception_in_a_thread_is_told_as_one_that_the_program_may_live_with(tmp_path):
    told, done = told_by(tmp_path, "t = threading.Thread(target=lost, name='t')\nt.start()\nt.join()", 1)
    assert told[0][0] == NOTICED and done.returncode == 0, done.stderr


@pytest.mark.parametrize("body, told", [
    ("try:\n    raise ValueError('no')\nfinally:\n    basics.shutdown()", [(NOTICED, "ValueError: no, <string>:9 in <module>"),
                                                                       (ENDS, "ValueError: no, <string>:9 in <module>")]),
    ("try:\n    lost()\nexcept HorovodInternalError:\n    basics.shutdown()", []),
    ("try:\n    sys.exit(3)\nfinally:\n    basics.shutdown()", []),
    ("basics.shutdown()\ntry:\n    1 / 0\nexcept ArithmeticError:\n    basics.shutdown()", []),
], ids=["finally", "lost", "exit", "left before"])
def test_a_rank_that_leaves_while_it_handles_a_failure_of_its_own_tells_of_that(tmp_path, body, told):
    heard, done = told_by(tmp_path, body, len(told))
    assert [(kind, what) for kind, _, what in heard] == told, done.stderr


@pytest.mark.parametrize("body", [
    "try:\n    1 / 0\nexcept Exception:\n    sys.excepthook(*sys.exc_info())",
    "pid = os.fork()\nif pid == 0:\n    raise ValueError\nos.waitpid(pid, 0)",
    "sys.exit(3)",
], ids=["printed", "forked", "exit"])
def test_what_does_not_end_the_rank_by_an_exception_is_not_told(tmp_path, body):
    told, done = told_by(tmp_path, body, 0)
    assert told == [], done.stderr
