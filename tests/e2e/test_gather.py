"""hvdrun --gather: equal lines of several ranks are one line on the console, and nothing else changes."""

import itertools
import re
import subprocess
import time

from hvdrun import PYTHON, hvdrun, program, read_until, start
from lab import wait_until
from patience import PATIENCE


def unfolded(text):
    """rank -> its lines in their order, from "[0-2,5]<stdout>:line"."""
    ranks = {}
    for line in text.splitlines():
        tag, rest = re.fullmatch(r"\[([\d,-]+)\]<std(?:out|err)>:(.*)", line).groups()
        for part in tag.split(","):
            first, _, last = part.partition("-")
            for rank in range(int(first), int(last or first) + 1):
                ranks.setdefault(rank, []).append(rest)
    return ranks


def test_what_all_ranks_print_is_one_line(tmp_path):
    meet = "touch {0}/$HVD_RANK; while [ $(ls {0} | wc -l) -lt 4 ]; do sleep 0.02; done;"
    prints = "for i in 1 2 3; do echo epoch $i; done; echo only $HVD_RANK >&2"
    folded = "".join(f"[0-3]<stdout>:epoch {i}\n" for i in (1, 2, 3))
    deadline = time.monotonic() + PATIENCE
    for i in itertools.count():
        folder = tmp_path / str(i)
        folder.mkdir()
        done = hvdrun("-q", "--gather", "-np", 4, "sh", "-c", meet.format(folder) + prints)
        assert done.returncode == 0
        assert unfolded(done.stdout) == {rank: ["epoch 1", "epoch 2", "epoch 3"] for rank in range(4)}
        assert unfolded(done.stderr) == {rank: [f"only {rank}"] for rank in range(4)}
        if done.stdout == folded:  # else some rank was held up for longer than the window
            break
        assert time.monotonic() < deadline


def test_lines_that_differ_all_come_whole_and_in_their_order():
    done = hvdrun("-q", "--gather", "-np", 3, *PYTHON, program("print_lines.py"), 20000)
    assert done.returncode == 0
    for text, name in ((done.stdout, "out"), (done.stderr, "err")):
        assert unfolded(text) == {r: [f"{name} {r} {i} {'x' * (i % 90)} end" for i in range(20000)] for r in range(3)}


def test_a_line_that_no_other_rank_prints_comes_while_the_job_goes_on():
    job = start("--gather", "-np", 2, "sh", "-c", "[ $HVD_RANK = 0 ] && echo alone; sleep 1000")
    read_until(job.stdout, r"^\[0\]<stdout>:alone$")
    wait_until(lambda: wakeups_in_2_s(job.pid) < 8, "a timer that goes on with nothing held would be 8 and more, each time")
    job.terminate()
    job.communicate(timeout=PATIENCE)
    assert job.returncode == 143


def wakeups_in_2_s(pid):
    before, begin = wakeups(pid), time.monotonic()
    time.sleep(2)  # sleeps: that nothing happens meanwhile is what is tested
    return (wakeups(pid) - before) * 2 / (time.monotonic() - begin)


def wakeups(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return sum(int(n) for n in re.findall(r"ctxt_switches:\s+(\d+)", status.read()))


def test_files_keep_each_ranks_own_lines(tmp_path):
    done = hvdrun("-q", "--gather", "--output-filename", tmp_path, "-np", 3, "echo", "same")
    assert unfolded(done.stdout) == {rank: ["same"] for rank in range(3)}
    for rank in range(3):
        assert (tmp_path / f"rank.{rank}/stdout").read_text() == f"[{rank}]<stdout>:same\n"


def test_what_was_printed_before_a_failure_comes_before_its_report():
    done = hvdrun("--gather", "-np", 3, "sh", "-c", "echo before >&2; [ $HVD_RANK = 2 ] && exit 3; sleep 1000",
                  stdout=subprocess.DEVNULL, capture_output=False, stderr=subprocess.PIPE)
    assert done.returncode == 3
    own, words = done.stderr.split("hvdrun: rank 2", 1)
    assert 2 in unfolded(own)


def test_memory_stays_bounded_when_one_rank_prints_much():
    job = start("--gather", "-np", 2, "sh", "-c", "[ $HVD_RANK = 0 ] && yes 12 | head -c 30000000; echo done >&2; sleep 1000",
                stdout=subprocess.DEVNULL)
    read_until(job.stderr, r"^\[0(,1)?\]<stderr>:done$")
    with open(f"/proc/{job.pid}/status", encoding="ascii") as status:
        peak_kb = int(re.search(r"VmHWM:\s+(\d+)", status.read()).group(1))
    job.terminate()
    job.communicate(timeout=PATIENCE)
    assert peak_kb < 64 * 1024
