"""What ranks print, on the console and in files: whole, tagged, none lost, whatever becomes of the reader."""

import os
import re
import signal
import subprocess

import pytest

from hvdrun import (
    HVDRUN, PYTHON, ROOT, env_with, hvdrun, processes_with, program, read_until, start, wait_until_gone, without_progress,
)  # fmt: skip
from lab import wait_until
from patience import PATIENCE


def test_ranks_print_whole_tagged_lines():
    done = hvdrun("-np", 2, "sh", "-c", "echo out $HVD_RANK of $HVD_SIZE; echo err >&2")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:out 0 of 2", "[1]<stdout>:out 1 of 2"]
    assert sorted(done.stderr.splitlines())[:2] == ["[0]<stderr>:err", "[1]<stderr>:err"]
    assert "hvdrun: 2 ranks on 1 node succeeded in" in done.stderr


def test_quiet_says_nothing_of_a_good_job():
    done = hvdrun("-q", "-np", 1, "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_gone_reader_stops_the_job_as_it_would_a_filter(marker):
    job = subprocess.Popen(f"'{HVDRUN}' -np 2 yes; echo code $? >&2", shell=True, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, cwd=ROOT, env=env_with(marker))
    read_until(job.stdout, "y", 3)
    job.stdout.close()
    assert "code 141" in job.stderr.read()
    job.wait(PATIENCE)
    assert wait_until_gone(marker) == {}


def test_a_job_ends_though_its_reader_takes_nothing_and_standard_error_has_the_last_words(marker, tmp_path):
    with open(tmp_path / "err", "w+", encoding="utf-8") as err:
        job = start("--grace", 1, "--timeout", 4, "-np", 2, "yes", env=env_with(marker), stderr=err)
        assert job.wait(PATIENCE) == 124
        err.seek(0)
        said = without_progress(err.read()).splitlines()
    job.stdout.close()
    assert said[0] == "hvdrun: --timeout: stacks of 2 running ranks"
    assert "hvdrun: the job has run for as long as --timeout allows" in said
    assert re.fullmatch(r"hvdrun: \d+ bytes of what the ranks printed were not written: who reads them takes nothing", said[-2]), said
    assert "hvdrun: job failed after" in said[-1]
    assert wait_until_gone(marker) == {}


def test_ctrl_c_ends_the_wait_for_a_reader_when_the_job_is_over(marker):
    job = start("-np", 1, "seq", 50000, env=env_with(marker))
    read_until(job.stdout, "1$")  # and no further: its pipe is full soon
    wait_until(lambda: [*processes_with(marker)] == [job.pid], "its rank and its agent are still there")
    job.send_signal(signal.SIGINT)
    assert job.wait(PATIENCE) == 130
    job.stdout.close()
    assert "were not written" in job.stderr.read()


def four_that_say_yes(marker):
    found = [pid for pid, args in processes_with(marker).items() if args.startswith("yes")]
    return found if len(found) == 4 else None


def test_a_slow_reader_slows_the_ranks_and_memory_stays_bounded(marker):
    job = start("-np", 4, "yes", "0123456789" * 10, env=env_with(marker))
    read_until(job.stdout, "0123", 10)
    # Nobody reads now. When the ranks stand still, nothing more is buffered anywhere.
    ranks = wait_until(lambda: four_that_say_yes(marker), "not all ranks run")

    def written():
        return [open(f"/proc/{pid}/io").read().split("wchar: ")[1].split()[0] for pid in ranks]

    before = None
    while before != (before := written()):
        subprocess.run(["sleep", "0.3"], check=True)
    with open(f"/proc/{job.pid}/status", encoding="ascii") as status:
        peak_kb = int(re.search(r"VmHWM:\s+(\d+)", status.read()).group(1))
    job.stdout.close()
    job.stderr.close()
    job.wait(PATIENCE)
    assert peak_kb < 64 * 1024
    assert wait_until_gone(marker) == {}


def check_lines(text, name, ranks, count):
    expected = {f"[{r}]<std{name}>:{name} {r} {i} {'x' * (i % 90)} end" for r in range(ranks) for i in range(count)}
    lines = [line for line in text.splitlines() if not line.startswith("hvdrun: ")]
    assert len(lines) == len(expected)
    assert set(lines) == expected


def test_a_hundred_runs_of_ten_lines_lose_and_tear_nothing():
    for _ in range(100):
        done = hvdrun("-np", 2, *PYTHON, program("print_lines.py"), 10)
        assert done.returncode == 0
        check_lines(done.stdout, "out", 2, 10)
        check_lines(done.stderr, "err", 2, 10)


def test_ten_runs_of_fifty_thousand_lines_lose_and_tear_nothing():
    for _ in range(10):
        done = hvdrun("-np", 4, *PYTHON, program("print_lines.py"), 50000)
        assert done.returncode == 0
        check_lines(done.stdout, "out", 4, 50000)
        check_lines(done.stderr, "err", 4, 50000)


def test_output_is_kept_in_files_as_well(tmp_path):
    done = hvdrun("-np", 11, "--output-filename", tmp_path / "kept", "sh", "-c", "echo out; echo err >&2")
    assert done.returncode == 0 and done.stdout.count("<stdout>:out") == 11
    for rank in range(11):
        folder = tmp_path / f"kept/rank.{rank:02}"
        assert (folder / "stdout").read_text() == f"[{rank}]<stdout>:out\n"
        assert (folder / "stderr").read_text() == f"[{rank}]<stderr>:err\n"


def test_output_that_cannot_be_kept_is_told_and_the_job_goes_on(tmp_path):
    kept = tmp_path / "kept"
    # Not before hvdrun has written there, which would put a file back in the middle of the removal.
    script = f"echo one; until grep -q one {kept}/rank.0/stdout; do sleep 0.05; done; rm -r {kept}; echo two; sleep 0.2; echo three"
    done = hvdrun("-np", 1, "--output-filename", kept, "sh", "-c", script)
    assert done.stdout == "[0]<stdout>:one\n[0]<stdout>:two\n[0]<stdout>:three\n"
    assert done.returncode == 244
    assert done.stderr.count("cannot write") == 1 and "not all of their output could be kept" in done.stderr
    (tmp_path / "file").write_text("")
    done = hvdrun("-np", 1, "--output-filename", tmp_path / "file", "echo", "ran")
    assert (done.returncode, done.stdout) == (244, "") and done.stderr.count("\n") == 1


def test_files_rotate_by_size_between_lines(tmp_path):
    done = hvdrun("-q", "-np", 2, "--no-tags", "--output-filename", tmp_path, "--output-rotate", "4K:3", "seq", 10000)
    assert done.returncode == 0
    for rank in (0, 1):
        folder = tmp_path / f"rank.{rank}"
        assert sorted(file.name for file in folder.glob("stdout*")) == ["stdout", "stdout.1", "stdout.2", "stdout.3"]
        assert all(3000 < (folder / f"stdout.{n}").stat().st_size <= 4096 for n in (1, 2, 3))
        kept = "".join((folder / name).read_text() for name in ("stdout.3", "stdout.2", "stdout.1", "stdout"))
        numbers = kept.splitlines()
        assert numbers == [str(n) for n in range(10001 - len(numbers), 10001)]


@pytest.mark.parametrize("problem", ["full disk", "rename"])
def test_a_file_that_cannot_be_written_or_renamed_does_not_stop_the_ranks(tmp_path, problem):
    folder = tmp_path / "rank.0"
    folder.mkdir()
    if problem == "full disk":
        (folder / "stdout").symlink_to("/dev/full")
    else:
        (folder / "stdout.1/in the way").mkdir(parents=True)
    done = hvdrun("-np", 2, "--output-filename", tmp_path, "--output-rotate", "100", "seq", 1000)
    assert done.returncode == 244
    assert len(done.stdout.splitlines()) == 2000
    said = "cannot write" if problem == "full disk" else "cannot rename"
    assert done.stderr.count(f"{said} {folder}/stdout") == 1 and done.stderr.count("hvdrun: ") == 2
    assert (tmp_path / "rank.1/stdout").read_text().endswith("[1]<stdout>:1000\n")


def test_a_console_that_is_full_is_told_by_the_exit_code():
    with open("/dev/full", "w") as full:
        done = hvdrun("-np", 1, "echo", "x", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 244
    # It is told before the rank has ended or after.
    assert re.search("cannot write to standard output: No space left on device(; 1 rank was stopped)?; exit code 244", done.stderr)


def test_lines_may_begin_with_the_time_and_tags_be_coloured():
    done = hvdrun("-np", 1, "--prefix-output-with-timestamp", "--color", "always", "echo", "x")
    assert re.fullmatch(r"\x1b\[36m\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\[0\]<stdout>:\x1b\[0mx\n", done.stdout)
    assert "\x1b" not in hvdrun("-np", 1, "echo", "x").stdout


def test_bytes_that_are_no_text_pass_unharmed():
    done = hvdrun("-q", "-np", 1, "printf", r"\377\000bad\nlast without newline", text=False)
    assert done.stdout == b"[0]<stdout>:\xff\x00bad\n[0]<stdout>:last without newline\n"


def test_without_tags_bytes_pass_as_they_are(tmp_path):
    (tmp_path / "data").write_bytes(os.urandom(700_000) + b"x" * 2_500_000 + b"\r\n" + b"y\rlast without newline")
    done = hvdrun("-q", "-np", 1, "--no-tags", "--output-filename", tmp_path / "kept", "cat", tmp_path / "data", text=False)
    assert done.returncode == 0
    assert done.stdout == (tmp_path / "data").read_bytes() == (tmp_path / "kept/rank.0/stdout").read_bytes()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_standard_stream_that_is_closed_from_the_start_is_nobody_elses(marker, closed):
    # The next thing that is opened would get its number: what is printed would go into a socket, and the job would hang.
    done = subprocess.run(["sh", "-c", f"exec {HVDRUN} -np 2 sh -c 'cat; echo out; echo err >&2' {closed}"], text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, env=env_with(marker), timeout=PATIENCE)
    assert done.returncode == 0
    assert ("[1]<stdout>:out" in done.stdout) == (">&-" not in closed.replace("2>&-", ""))
    assert ("[1]<stderr>:err" in done.stderr) == ("2>&-" not in closed)
    assert wait_until_gone(marker) == {}


def test_only_ranks_that_are_to_be_shown_come_to_the_console_and_files_have_all(tmp_path):
    done = hvdrun("-q", "--show-ranks", "0,2-3", "--output-filename", tmp_path, "-np", 5, "sh", "-c", "echo out; echo err >&2")
    assert done.returncode == 0
    for text, name in ((done.stdout, "out"), (done.stderr, "err")):
        assert sorted(text.splitlines()) == [f"[{rank}]<std{name}>:{name}" for rank in (0, 2, 3)]
        for rank in range(5):
            assert (tmp_path / f"rank.{rank}/std{name}").read_text() == f"[{rank}]<std{name}>:{name}\n"


@pytest.mark.parametrize("more", [[], ["--gather"]])
def test_a_failure_of_a_rank_that_is_not_shown_is_told_with_its_last_lines(more):
    done = hvdrun("--show-ranks", 0, *more, "-np", 3, "sh", "-c",
                  "echo printed by $HVD_RANK >&2; [ $HVD_RANK = 2 ] || exec sleep 1000; exit 3")  # fmt: skip
    assert done.returncode == 3
    assert re.search(r"^hvdrun: rank 2 on localhost .*exited with code 3", done.stderr, re.M)
    assert re.findall(r"^(.*)printed by 2$", done.stderr, re.M) == ["hvdrun:   "], done.stderr
    assert "printed by 1" not in done.stderr


@pytest.mark.parametrize("word, message", [("x", "--show-ranks: 'x' is neither a rank's number nor a range of them"),
                                           ("0,2-1", "--show-ranks: '2-1' is neither"), ("0,", "--show-ranks: '' is neither"),
                                           ("1-3", "--show-ranks 3: the last rank is 2")])
def test_ranks_that_cannot_be_shown_are_refused_before_anything_starts(word, message):
    for command in ([], ["plan"]):
        done = hvdrun(*command, "-np", 3, "--show-ranks", word, "echo", "started")
        assert (done.returncode, done.stdout) == (240, "")
        assert message in done.stderr and done.stderr.count("\n") == 1


def test_a_rank_that_may_join_later_can_be_named(tmp_path):
    words = ["plan", "--show-ranks", "0,5", "-np", 1]
    assert hvdrun(*words, "--join-file", tmp_path / "join", "true").returncode == 0
    assert hvdrun(*words, "true").returncode == 240
