"""Standard input: whom it goes to, that all of it comes, and that nobody waits for it."""

import hashlib
import os
import random
import re
import signal
import subprocess
import threading

import pytest

from hvdrun import HVDRUN, PYTHON, ROOT, env_with, hvdrun, program, read_until, start, wait_until_gone
from lab import wait_until
from patience import PATIENCE
from screen import Terminal
from ways import way  # noqa: F401  (a fixture)

READS = [*PYTHON, program("reads_input.py")]


def digest(data):
    return f"{len(data)} {hashlib.md5(data).hexdigest()}"


def read_by_ranks(done):
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"^\[(\d)\]<stdout>:(.*)$", done.stdout, re.M))


def test_rank_0_reads_it_and_for_the_others_there_is_nothing(way, marker):
    done = hvdrun(*way, *READS, input="one\ntwo\n", stdin=None, env=env_with(marker))
    assert read_by_ranks(done) == {"0": digest(b"one\ntwo\n"), "1": digest(b""), "2": digest(b"")}
    assert wait_until_gone(marker) == {}


def test_another_rank_may_read_it_or_all_or_none(way):
    data, empty = digest(b"some\0\xff"), digest(b"")
    for word, expected in [("2", [empty, empty, data]), ("all", [data] * 3), ("none", [empty] * 3)]:
        done = hvdrun("--stdin", word, *way, *READS, input=b"some\0\xff", stdin=None, text=False)
        done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
        assert read_by_ranks(done) == dict(zip("012", expected))


@pytest.mark.parametrize("word, message", [("3", "--stdin 3: the last rank is 2"), ("x", "--stdin 'x': expected a rank"),
                                           ("-1", "--stdin"), ("0x", "--stdin '0x'")])
def test_a_rank_that_is_none_is_refused_before_anything_starts(word, message):
    done = hvdrun("-np", 3, f"--stdin={word}", "true")
    assert done.returncode == 240 and message in done.stderr and done.stderr.count("\n") == 1
    assert hvdrun("plan", "-np", 3, f"--stdin={word}", "true").returncode == 240


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_all_of_much_comes(way, kind, tmp_path):
    data = random.Random(1).randbytes(50_000_000)
    if kind == "pipe":
        done = hvdrun(*way, *READS, input=data, stdin=None, text=False)
    else:
        (tmp_path / "data").write_bytes(data)
        with open(tmp_path / "data", "rb") as source:
            done = hvdrun(*way, *READS, stdin=source, text=False)
    assert done.returncode == 0, done.stderr
    assert f"[0]<stdout>:{digest(data)}\n".encode() in done.stdout


def test_a_rank_that_does_not_read_costs_nothing_and_keeps_nobody_waiting(tmp_path, marker):
    """Also its file is read no further than what may be under way."""
    with open(tmp_path / "data", "wb") as data:
        data.truncate(1 << 30)
    with open(tmp_path / "data", "rb") as source:
        job = start("--no-tags", "-np", 1, "sh", "-c", "echo up; read line < go; echo over", stdin=source, cwd=tmp_path,
                    env=env_with(marker), preexec_fn=lambda: os.mkfifo("go"))
        read_until(job.stdout, "up")
        # Its pipe is full then, and so is the window.
        wait_until(lambda: os.lseek(source.fileno(), 0, os.SEEK_CUR) >= 256 << 10, "nothing is read")
        (tmp_path / "go").write_text("\n")
        out, err = job.communicate(timeout=PATIENCE)
        assert (job.returncode, out) == (0, "over\n"), err
        assert os.lseek(source.fileno(), 0, os.SEEK_CUR) <= (256 << 10) + (1 << 20)
    assert wait_until_gone(marker) == {}


def test_a_job_ends_without_the_end_of_its_input(way):
    reading, writing = os.pipe()
    os.write(writing, b"more\n")
    done = hvdrun(*way, "sh", "-c", "[ $RANK != 0 ] || head -n1", stdin=reading)
    os.close(reading)
    os.close(writing)
    assert (done.returncode, done.stdout) == (0, "[0]<stdout>:more\n"), done.stderr


def test_a_rank_that_takes_what_it_wants_ends_the_writer():
    shell = f"yes | {HVDRUN} -q --no-tags -np 2 sh -c 'head -n 3' | cat; echo ${{PIPESTATUS[*]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == f"y\ny\ny\n{128 + signal.SIGPIPE} 0 0\n", done.stderr


def test_a_writer_learns_that_no_rank_reads_any_more_while_the_job_goes_on(tmp_path):
    """As in a pipeline: `yes` ends when the last rank has closed its input, and not with the job."""
    os.mkfifo(tmp_path / "go")
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as writer:
        job = start("-np", 1, "sh", "-c", "exec <&-; read line < go", stdin=writer.stdout, cwd=tmp_path)
        writer.stdout.close()
        assert writer.wait(PATIENCE) == -signal.SIGPIPE
        assert job.poll() is None
        (tmp_path / "go").write_text("\n")
        assert job.communicate(timeout=PATIENCE) and job.returncode == 0


def test_a_program_that_a_rank_leaves_behind_does_not_keep_its_input():
    reading, writing = os.pipe()
    done = hvdrun("-q", "-np", 1, "sh", "-c", "cat >/dev/null & exit 0", stdin=reading)
    os.close(reading)
    os.close(writing)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("redirection", ["<&-", "</dev/null", "<.", "0>/dev/null"])
def test_what_cannot_be_read_is_empty(redirection):
    done = subprocess.run(["bash", "-c", f'exec "$@" {redirection}', "-", HVDRUN, "-np", "1", *READS], text=True, cwd=ROOT,
                          capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
    assert read_by_ranks(done) == {"0": digest(b"")}


def test_what_is_shared_with_other_programs_is_left_as_it_was():
    """A shell's descriptors are not made non-blocking, and what a job did not read is not lost to a file's next reader."""
    code = ("import fcntl, os, subprocess, sys; subprocess.run(sys.argv[1:], check=True);"
            "print(fcntl.fcntl(0, fcntl.F_GETFL) & os.O_NONBLOCK)")
    done = subprocess.run([*PYTHON, "-c", code, HVDRUN, "-q", "-np", "1", "true"], input="x", text=True, timeout=PATIENCE,
                          capture_output=True)
    assert done.stdout == "0\n", done.stderr
    loop = f"while read -r n; do {HVDRUN} -q --no-tags --stdin none -np 1 echo $n; done"
    done = subprocess.run(["bash", "-c", loop], input="1\n2\n3\n", text=True, capture_output=True, timeout=PATIENCE)
    assert done.stdout == "1\n2\n3\n", done.stderr


# ---- over connections that break ----


def feed(stream, data):
    def write():
        try:
            stream.write(data)
        except BrokenPipeError:
            pass  # the job has ended, and the test tells why
        finally:
            stream.close()

    writer = threading.Thread(target=write)
    writer.start()
    return writer


def test_a_connection_that_breaks_loses_and_doubles_nothing(lab3):
    """It is broken with all that may be under way on its way, twice."""
    data = random.Random(2).randbytes(5_000_000)
    steps = lab3.shared / "steps"
    steps.mkdir()
    job = lab3.popen(HVDRUN, "--no-tags", "--reconnect-timeout", str(PATIENCE), "-H", "node1:1,node2:1", *READS,
                     steps, stdin=subprocess.PIPE, text=False)
    writer = feed(job.stdin, data)
    for step in range(2):
        wait_until(lambda: (steps / f"at{step}").exists(), "rank 0 has not come so far")
        serving = wait_until(lambda: [p.pid for p in lab3.ps("node1", everything=True) if re.search("sshd: .*@notty", p.args)],
                             "no connection to node1")
        os.kill(serving[-1], signal.SIGKILL)
        (steps / f"go{step}").touch()
    out, err = job.stdout.read(), job.stderr.read()
    assert job.wait(PATIENCE) == 0, err
    writer.join()
    assert sorted(out.decode().splitlines()) == sorted([digest(data), digest(b"")])
    assert err.count(b"hvdrun: node1: reached again after ") == 2, err
    assert lab3.wait_for_no_processes() == []


# ---- on a terminal ----


def on_terminal(*arguments, **options):
    return Terminal([HVDRUN, *arguments], cwd=ROOT, **options)


def test_a_script_asks_and_is_answered_and_its_question_is_seen_first():
    job = on_terminal("-np", 2, *PYTHON, "-c",
                      "import os\nif os.environ['RANK'] == '0': print('hello', input('name? '), input('again? '))")
    job.wait_for(lambda s: s.all()[-1:] == ["[0]<stdout>:name?"])
    os.write(job.end, b"some one\n")
    job.wait_for(lambda s: s.all()[-1].endswith("again?"))
    os.write(job.end, b"2\n")
    assert job.finish() == 0
    assert "hello some one 2" in "".join(job.screen.all())


def test_a_debugger_is_talked_to():
    job = on_terminal("-np", 1, *PYTHON, "-c", "value = 41\nbreakpoint()\nprint('went on', value)")
    job.wait_for(lambda s: s.all()[-1].endswith("(Pdb)"))
    os.write(job.end, b"p value + 1\n")
    job.wait_for(lambda s: any(row.endswith("42") for row in s.all()))
    os.write(job.end, b"c\n")
    assert job.finish() == 0
    assert any("went on 41" in row for row in job.screen.all())


def test_the_end_of_a_terminals_input_is_passed_on():
    job = on_terminal("-q", "-np", 1, *PYTHON, "-c", "import sys; print('up'); print(sys.stdin.read().split())")
    job.wait_for(lambda s: any("up" in row for row in s.all()))
    os.write(job.end, b"a\nb\n\x04")
    assert job.finish() == 0
    assert "[0]<stdout>:['a', 'b']" in job.screen.all()


def test_in_the_background_of_a_shell_it_is_not_stopped_and_in_front_it_reads(tmp_path, marker):
    """What is typed then is the shell's."""
    shell = Terminal(["setsid", "--ctty", "--wait", "bash", "--norc", "--noprofile", "--noediting", "-i"], cwd=tmp_path,
                     env={**os.environ, "HVDRUN": HVDRUN})
    out = tmp_path / "out"
    code = "print('up'); print('got', input())"
    command = f"{marker} \"$HVDRUN\" -q --no-tags -np 1 {' '.join(PYTHON)} -c \"{code}\" > out 2>&1 &\n"
    os.write(shell.end, command.encode())
    wait_until(lambda: out.exists() and out.read_text() == "up\n", "the job is not up")
    for word in ("one", "two"):
        os.write(shell.end, f"echo shell-has-$((1+1))-{word}\n".encode())
        shell.wait_for(lambda s, word=word: any(row.endswith(f"shell-has-2-{word}") for row in s.all()))
    os.write(shell.end, b"jobs -r\n")
    shell.wait_for(lambda s: any("Running" in row for row in s.all()))
    # A terminal gives a line to each read: the shell takes the first, and waits for the job, which takes the second.
    os.write(shell.end, b"fg\nfor the job\n")
    wait_until(lambda: out.read_text() == "up\ngot for the job\n", "the job got nothing")
    assert wait_until_gone(marker) == {}  # else it takes the next line, too
    os.write(shell.end, b"exit\n")
    assert shell.finish() == 0


def test_with_nohup_a_terminal_is_not_read():
    job = on_terminal("-q", "-np", 1, *READS)
    os.write(job.end, b"\x04")
    assert job.finish() == 0
    job = Terminal(["nohup", HVDRUN, "-np", "1", *READS], cwd=ROOT, stdout=subprocess.PIPE)
    assert job.finish() == 0
    assert f"[0]<stdout>:{digest(b'')}" in job.process.stdout.read().decode()


# ---- jobs of files ----


def test_the_job_of_a_file_reads_it_and_its_preparation_does_not(tmp_path):
    words = " ".join(READS)
    (tmp_path / "job.yaml").write_text(f"name: reads\nnodeCount: 1\nprepare: \"{words}\"\ncommand: \"{words}\"\n")
    done = hvdrun("-q", "-f", tmp_path / "job.yaml", input="abc", stdin=None)
    assert done.returncode == 0, done.stderr
    assert f"[0]<stdout>:{digest(b'abc')}\n" in done.stdout
    assert digest(b"") in done.stdout


def test_a_submitted_job_takes_none(tmp_path):
    (tmp_path / "job.yaml").write_text("name: reads\nnodeCount: 1\ncommand: cat\n")
    done = hvdrun("submit", "--stdin", "0", "-f", tmp_path / "job.yaml", env={**os.environ, "XDG_STATE_HOME": str(tmp_path)})
    assert done.returncode == 240 and "--stdin 0: a submitted job outlives" in done.stderr
