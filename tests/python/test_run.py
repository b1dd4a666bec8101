"""horovod.run: a function on several ranks, here and on what hvdrun takes for other hosts."""

import os
import pickle
import shutil
import signal
import subprocess
import sys

import pytest
from hvdrun import HVDRUN
from lab import wait_until
from patience import PATIENCE

import horovod
from horovod.runner import _exchange, _job, _launch

pytestmark = pytest.mark.skipif(not os.access(HVDRUN, os.X_OK), reason="hvdrun is not built")
HOSTS = {"here": None, "elsewhere": "localhost:1,elsewhere:1"}


@pytest.fixture(params=HOSTS)
def hosts(request, monkeypatch):
    """Both ways on which a function goes; the second host is this machine under another name."""
    monkeypatch.setattr(_job, "find_program", lambda _name: HVDRUN)
    monkeypatch.setenv("HVD_RSH", "sh -c 'exec \"$@\"' {host}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return HOSTS[request.param]


def test_results_come_in_the_order_of_the_ranks(hosts, capsys):
    offset = 10

    def work(factor, more=0):
        import horovod.torch as hvd
        import torch

        hvd.init()
        print("half a line of", hvd.rank(), end="")
        total = hvd.allreduce(torch.tensor(1.0), op=hvd.Sum).item()
        left = [name for name in os.environ if name.startswith("HVD_RUN_")]
        return hvd.rank() * factor + more + offset, total, "x" * 300_000, left

    results = horovod.run(work, (2,), {"more": 1}, np=2, hosts=hosts)
    assert results == [(11, 2.0, "x" * 300_000, []), (13, 2.0, "x" * 300_000, [])]
    shown = capsys.readouterr()
    assert sorted(shown.out.splitlines()) == ["[0]<stdout>:half a line of 0", "[1]<stdout>:half a line of 1"]


def test_files_of_the_ranks_output_have_what_they_have_printed_and_no_results(hosts, tmp_path):
    def work():
        print("hello")
        print("half a line", end="")
        return "x" * 100_000

    assert horovod.run(work, np=2, hosts=hosts, output_filename=str(tmp_path / "out")) == ["x" * 100_000] * 2
    kept = [path.read_text() for path in sorted(tmp_path.glob("out/rank.*/stdout"))]
    assert [text.splitlines() for text in kept] == [[f"[{rank}]<stdout>:hello", f"[{rank}]<stdout>:half a line"] for rank in range(2)]


class OwnError(Exception):
    pass


def test_the_first_exception_is_raised_with_its_traceback(hosts, capsys):
    def work():
        import horovod.torch as hvd
        import torch

        hvd.init()
        if hvd.rank() == 1:
            raise OwnError("of rank", 1)
        hvd.allreduce(torch.ones(1))  # fails because of rank 1

    with pytest.raises(OwnError) as caught:
        horovod.run(work, num_proc=2, hosts=hosts)
    assert caught.value.args == ("of rank", 1)
    assert "on rank 1" in str(caught.value.__cause__) and "in work" in str(caught.value.__cause__)
    line = work.__code__.co_firstlineno + 6
    assert f'File "{__file__}", line {line}, in work\n    raise OwnError("of rank", 1)\n' in caught.value.__cause__.text
    # Not what hvdrun repeats of it too.
    assert [line for line in str(caught.value.__cause__).splitlines() if line.endswith("OwnError: ('of rank', 1)")] != []
    assert str(caught.value.__cause__).count("OwnError: ('of rank', 1)\n") == 1, str(caught.value.__cause__)
    assert "job failed after" in str(caught.value.__cause__)


def test_of_the_last_words_only_the_lines_of_the_rank_that_is_told_are_left_out():
    report = (
        "[0]<stderr>:Traceback\n[0]<stderr>:KeyError: 3\n[1]<stderr>:Traceback\n12:00 [1]<stderr>:ValueError: 1\n[1]<stderr>:mine\n"
        "hvdrun: rank 1 failed\nhvdrun: the last lines of its standard error:\nhvdrun:   Traceback\nhvdrun:   ValueError: 1\n"
        "hvdrun: stopping the other rank\n"
    )
    assert _job._without_traceback(report, 1, "Traceback\nValueError: 1\n") == (
        "[0]<stderr>:Traceback\n[0]<stderr>:KeyError: 3\n[1]<stderr>:mine\nhvdrun: rank 1 failed\nhvdrun: stopping the other rank\n"
    )
    kept = "hvdrun: the last lines of its standard error:\nhvdrun:   an earlier one\nhvdrun:   ValueError: 1\n"
    assert _job._without_traceback(kept, 1, "ValueError: 1\n") == kept


def test_ctrl_c_stops_the_ranks_and_ends_the_process_in_order():
    script = """
import horovod

def work():
    while True:
        print("line", flush=True)

horovod.run(work, np=2)
"""
    environment = dict(os.environ, PATH=os.path.dirname(HVDRUN) + os.pathsep + os.environ["PATH"])
    process = subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert b"line" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=PATIENCE)[1].decode()
    assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in errors and "Fatal" not in errors, errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_program_that_is_killed(number):
    script = """
import horovod

def work():
    import os, time
    print("rank", os.getpid(), flush=True)
    time.sleep(3600)

horovod.run(work, np=2, verbose=False)
"""
    environment = dict(os.environ, PATH=os.path.dirname(HVDRUN) + os.pathsep + os.environ["PATH"])
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE) as process:
        ranks = [int(process.stdout.readline().split()[-1]) for _ in range(2)]
        process.send_signal(number)
    wait_until(lambda: not any(os.path.exists(f"/proc/{rank}") for rank in ranks), "ranks outlive the program that asked for them")


def test_an_exception_that_cannot_travel_is_told(hosts):
    def work():
        class Local(Exception):
            def __reduce__(self):
                raise TypeError("no pickle")

        raise Local("words")

    with pytest.raises(RuntimeError, match="Local: words"):
        horovod.run(work, num_proc=1, hosts=hosts and "elsewhere:1")


def test_a_result_that_cannot_travel_is_told(hosts):
    def work():
        import threading

        return {"loss": 0.5, "model": [threading.Lock()]}

    with pytest.raises(TypeError, match=r"^what the function returns cannot be sent back: its result, item 'model', item 0 \(a _thread.lock\)"):
        horovod.run(work, num_proc=1, hosts=hosts and "elsewhere:1")


@pytest.mark.parametrize("end, words", [
    ("os._exit(3)", "exit code 3"), ("sys.exit(3)", "exit code 3"), ("os.kill(os.getpid(), 9)", "SIGKILL"),
    ("os._exit(0)", "left no result: each ended with code 0 before its function returned"),
    ("sys.exit(0)", r"the function called sys.exit\(\), which ends this rank without a result"),
])  # fmt: skip
def test_a_rank_that_ends_by_itself_is_an_error(hosts, end, words):
    def work():
        exec("import os, sys\n" + end)

    with pytest.raises(RuntimeError, match=words):
        horovod.run(work, num_proc=1, hosts=hosts and "elsewhere:1")


def test_a_rank_that_is_killed_is_the_error_and_not_what_the_others_then_raise():
    def work():
        import os

        import torch

        import horovod.torch as hvd

        hvd.init()
        if hvd.rank() == 1:
            os.kill(os.getpid(), 9)
        hvd.allreduce(torch.ones(1))

    with pytest.raises(RuntimeError, match=r"(?s)hvdrun ended with exit code 137.*rank 1 .*SIGKILL") as caught:
        horovod.run(work, num_proc=2)
    assert type(caught.value) is RuntimeError
    # Programs that start a failed job again know it by these words.
    assert "Horovod detected that one or more processes exited with non-zero status" in str(caught.value)


def test_a_rank_whose_slot_is_taken_away_ends_without_a_word(tmp_path, capfd):
    offered = tmp_path / "hosts"
    offered.write_text("localhost:3\n")

    def work(path):
        import time

        import horovod.torch as hvd

        hvd.init()
        state = hvd.elastic.TorchState(step=0)

        @hvd.elastic.run
        def train(state):
            while hvd.size() > 2:
                if state.step == 2 and hvd.rank() == 0:
                    with open(path + ".new", "w") as file:
                        file.write("localhost:2\n")
                    os.rename(path + ".new", path)
                state.step += 1
                state.commit()
                time.sleep(0.02)
            return hvd.rank()

        return train(state)

    script = f"cat {offered}"
    assert horovod.run(work, (str(offered),), num_proc=3, min_num_proc=2, host_discovery_script=script) == [0, 1]
    assert "Traceback" not in capfd.readouterr().err


def test_lines_that_nobody_can_take_do_not_stop_a_job(capfd):
    class Refuses:
        def write(self, text):
            raise AttributeError("no room")

    lines = "import sys; [print('x' * 1000) for _ in range(1000)]; print('end', file=sys.stderr)"  # more than a pipe holds
    code, last = _job.run_to_end(_job.start([sys.executable, "-c", lines], dict(os.environ)), lambda line: line, Refuses())
    assert (code, last) == (0, "end\n")
    assert capfd.readouterr().err.count("horovod: what ranks print is lost: AttributeError: no room") == 1

    def fails(line):
        raise UnicodeEncodeError("ascii", "\u2713", 0, 1, "a print() that fails")

    code, last = _job.run_to_end(_job.start([sys.executable, "-c", lines], dict(os.environ)), fails, Refuses())
    assert code == 0 and "UnicodeEncodeError" in capfd.readouterr().err


def test_what_is_too_large_for_other_hosts_is_refused():
    with pytest.raises(ValueError, match="Put large data into files"):
        _exchange.Lines(os.urandom(2_000_000))


def test_a_large_function_that_tasks_bring_is_that_which_was_sent(monkeypatch, tmp_path):
    monkeypatch.setenv("HVD_RANK", "0")
    function = os.urandom(2_000_000)
    exchange = _exchange.Lines(function, has_tasks=True)
    assert exchange.by_tasks == function and _exchange.Lines(b"f", has_tasks=True).by_tasks is None
    assert sum(map(len, exchange.environment.values())) < 1000
    file = tmp_path / "function"
    for brought in (function, function[:-1]):
        file.write_bytes(brought)
        for name, value in {**exchange.environment, _exchange.FUNCTION_FILE: str(file)}.items():
            monkeypatch.setenv(name, value)
        if brought == function:
            assert _exchange.receive() == function
        else:
            with pytest.raises(RuntimeError, match="not what this job has sent"):
                _exchange.receive()
    _exchange.Reply()


def test_nothing_is_unpickled_that_the_jobs_own_processes_have_not_sent(tmp_path, monkeypatch):
    monkeypatch.setenv("HVD_RANK", "1")

    def reply_to(exchange):
        """A rank that has got the function and sends a result."""
        for name, value in exchange.environment.items():
            monkeypatch.setenv(name, value)
        assert _exchange.receive() == b"function"
        reply = _exchange.Reply()
        assert not [name for name in os.environ if name.startswith("HVD_RUN_")]
        return reply

    folder = _exchange.Folder(str(tmp_path), b"function")
    reply_to(folder).send("mine")
    result = tmp_path / "result.1"
    assert pickle.loads(folder.result(1)) == "mine"
    (tmp_path / "result.0").write_bytes(result.read_bytes())  # true, but of another rank
    changed = bytearray(result.read_bytes())
    changed[-1] ^= 1
    result.write_bytes(changed)
    for rank in range(2):
        with pytest.raises(RuntimeError, match=f"the result of rank {rank} is not what this job has sent"):
            folder.result(rank)

    lines = _exchange.Lines(b"function")
    reply = reply_to(lines)
    reader, reply._output = os.pipe()
    reply.send("mine")
    sent = os.read(reader, 1 << 16)
    for line in sent.splitlines(keepends=True):
        lines.take(b"[1]<stdout>:" + line)
    assert pickle.loads(lines.result(1)) == "mine"
    # Somebody who has read the word in a file of output, and writes as rank 0.
    for line in sent.splitlines(keepends=True):
        lines.take(b"[0]<stdout>:" + line.replace(b" 1 ", b" 0 ", 1))
    with pytest.raises(RuntimeError, match="the result of rank 0 is not what this job has sent"):
        lines.result(0)
    os.close(reader)


def test_wrong_arguments():
    for wrong in (
        {"np": 2, "min_np": 3}, {"np": 2, "min_np": 1, "max_np": 1},
        {"hosts": "a:1", "hostfile": "b"}, {"use_gloo": True, "use_mpi": True}, {"np": 0}, {"num_proc": "2"},
    ):  # fmt: skip
        with pytest.raises(ValueError):
            horovod.run(print, **wrong)
    with pytest.raises(TypeError, match="a function is needed, not 'train.py'; a script is started by hvdrun"):
        horovod.run("train.py", np=2)
    with pytest.raises(TypeError, match=r"args must be a list or tuple of arguments, not 0.1; write args=\[0.1\]"):
        horovod.run(print, args=(0.1), np=2)
    with pytest.raises(TypeError, match="not 'one'"):
        horovod.run(print, args="one", np=2)
    with pytest.raises(TypeError, match=r"kwargs must be a dict of arguments by name, not \['a'\]"):
        horovod.run(print, kwargs=["a"], np=2)


@pytest.mark.parametrize("where", [
    {"hosts": "localhost:2,127.0.0.1:2"}, {"host_discovery_script": "echo localhost:2; echo 127.0.0.1:2"}
])  # fmt: skip
def test_an_elastic_job_takes_all_slots_and_returns_as_many_results_as_it_needs(hosts, where):
    def work():
        return os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"], os.environ["HOROVOD_HOSTNAME"]

    first = [("0", "4", "localhost"), ("1", "4", "localhost"), ("2", "4", "127.0.0.1")]
    assert horovod.run(work, num_proc=2, min_num_proc=1, **where) == first[:1]
    assert horovod.run(work, num_proc=3, **where, **({"min_num_proc": 3} if "hosts" in where else {})) == first
    some = horovod.run(work, num_proc=1, min_num_proc=1, max_num_proc=3, reset_limit=0, cooldown_range=(1, 2), **where)
    assert some == [("0", "3", "localhost")]


def test_an_elastic_job_that_fails_raises_what_its_function_raised(hosts):
    def work():
        raise KeyError("no such thing")

    with pytest.raises(KeyError, match="no such thing"):
        horovod.run(work, num_proc=2, min_num_proc=1, host_discovery_script="echo localhost:2")


def test_limits_that_leave_no_choice_are_taken(hosts):
    def work():
        return int(os.environ["HVD_RANK"])

    assert horovod.run(work, num_proc=2, min_num_proc=2, max_num_proc=2, hosts=hosts) == [0, 1]


def test_what_hvdrun_refuses_is_a_value_error(hosts):
    with pytest.raises(ValueError, match="hvdrun"):
        horovod.run(print, np=2, hosts="localhost:x")


def test_a_way_of_starting_that_is_not_there_is_a_value_error_and_a_rank_s_own_code_is_none(monkeypatch):
    with pytest.raises(RuntimeError, match="exited with code 240"):  # hvdrun's code for what it refuses
        horovod.run(os._exit, (240,), num_proc=1)
    monkeypatch.setenv("PATH", "/usr/bin-of-no-mpirun")
    with pytest.raises(ValueError, match="mpirun"):
        horovod.run(print, num_proc=1, use_mpi=True)


def test_a_number_of_ranks_may_be_one_of_numpy_s_or_of_the_former_name():
    import numpy

    def rank():
        return int(os.environ["HVD_RANK"])

    assert horovod.run(rank, num_proc=numpy.int64(2)) == [0, 1]
    with pytest.warns(DeprecationWarning, match="np has been renamed to num_proc"):
        assert horovod.run(rank, np=2) == [0, 1]
    with pytest.warns(DeprecationWarning):
        assert horovod.run(rank, num_proc=2, np=1) == [0, 1]
    for wrong in (True, 1.5, "2", 0):
        with pytest.raises(ValueError, match="num_proc must be a number of ranks"):
            horovod.run(rank, num_proc=wrong)


def test_the_folder_is_for_this_user_only_and_goes(hosts, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def work():
        path = os.environ.get("TMPDIR")
        return [oct(os.stat(os.path.join(path, name)).st_mode & 0o777) for name in os.listdir(path) if "hvd-run" in name]

    assert horovod.run(work, hosts=hosts and "elsewhere:1") == [["0o700"]]
    assert not [name for name in os.listdir(tmp_path) if "hvd-run" in name]


def test_the_module_of_horovodrun(tmp_path):
    environment = dict(os.environ, PATH=os.path.dirname(HVDRUN) + os.pathsep + os.environ["PATH"])
    if shutil.which("hvdrun", path=environment["PATH"]) is None:
        pytest.skip("no hvdrun in PATH")
    done = subprocess.run(
        [sys.executable, "-m", "horovod.runner.launch", "-np", "2", "echo", "hello"],
        env=environment, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:hello", "[1]<stdout>:hello"]


def test_nodes_with_different_numbers_of_ranks(hosts):
    def work():
        import horovod.torch as hvd

        hvd.init()
        hvd.barrier()
        return hvd.is_homogeneous()

    if hosts is None:
        assert horovod.run(work, np=2) == [True, True]
    else:
        assert horovod.run(work, np=3, hosts="localhost:2,elsewhere:1") == [False] * 3
        assert horovod.run(work, np=2, hosts="localhost:1,elsewhere:1") == [True] * 2


def test_secrets_are_no_words_of_hvdrun_s_and_long_values_are_refused():
    given = {"API_TOKEN": "hidden", "PLAIN": "seen"}
    launch = _launch.Launch(num_proc=1, words=[], environment=given, executable=None, is_local=True, largest_result=1, payload=b"f")
    words = launch._argv(_exchange.Lines(b"f"), 3)
    assert {"API_TOKEN", "PLAIN=seen"} <= set(words) and not any("hidden" in word for word in words)
    assert launch._hidden() == {"API_TOKEN": "hidden"}
    given["LONG"] = "x" * 200_000
    with pytest.raises(ValueError, match="env: LONG has more than the 131071 bytes"):
        launch._argv(_exchange.Lines(b"f"), 3)
