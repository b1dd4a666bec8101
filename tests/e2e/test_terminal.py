"""What a person sees of hvdrun on a terminal: colours, progress bars, the start."""

import os
import re
import subprocess

import pytest

from hvdrun import HVDRUN, PYTHON, ROOT, hvdrun, program, read_until, start
from patience import PATIENCE
from screen import Terminal

PLAIN = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CLICOLOR_FORCE")}


def on_terminal(*arguments, **options):
    return Terminal([HVDRUN, *arguments], **{"env": PLAIN, "cwd": ROOT, **options})


def bar(done, count, rank):
    filled = 40 * done // count
    return f"[{rank}]<stderr>:{100 * done // count:3d}%|{'█' * filled}{' ' * (40 - filled)}| {done}/{count} of rank {rank}"


def allow(folder, state):
    (folder / str(state)).touch()


def test_each_rank_has_a_row_for_its_bar_below_the_lines(tmp_path):
    job = on_terminal("-np", 3, *PYTHON, program("bar.py"), 2, tmp_path)
    job.wait_for(lambda s: s.all() == [bar(0, 2, rank) for rank in range(3)])
    allow(tmp_path, 0)
    job.wait_for(lambda s: s.all()[3:] == [bar(1, 2, rank) for rank in range(3)])
    assert sorted(job.screen.all()[:3]) == [f"[{rank}]<stdout>:rank {rank} did 0" for rank in range(3)]
    allow(tmp_path, 1)
    assert job.finish() == 0
    rows = job.screen.all()
    for rank in range(3):
        own = [row for row in rows if row.startswith(f"[{rank}]")]
        assert [row for row in own if "stdout" in row] == [f"[{rank}]<stdout>:rank {rank} did {i}" for i in range(3)]
        assert [row for row in own if "stderr" in row] == [bar(2, 2, rank)]  # once, as a line
    assert re.fullmatch(r"hvdrun: 3 ranks on 1 node succeeded in .*", rows[-2])


@pytest.mark.parametrize("columns, lines", [(80, 24), (40, 10)])
def test_bars_fit_the_terminal_and_leave_no_trace(tmp_path, columns, lines):
    job = on_terminal("-np", 16, *PYTHON, program("bar.py"), 3, tmp_path, columns=columns, lines=lines)
    shown = lines // 2 - 1
    job.wait_for(lambda s: s.all() == [bar(0, 3, r)[:columns - 1].rstrip() for r in range(shown)] + [f"({16 - shown} more)"])
    for state in range(3):
        allow(tmp_path, state)
    assert job.finish() == 0
    text = "".join(row.ljust(columns) if len(row) == columns else row + "\n" for row in job.screen.all())
    words = [line for line in text.replace(" ", "").replace("\n", "").split("[") if line]
    assert sum("stdout" in word for word in words) == 16 * 4 and sum("100%" in word for word in words) == 16
    assert "more)" not in text


def test_a_failure_stands_above_the_bars_that_go_on(tmp_path):
    ends = "[ $HVD_RANK = 1 ] && { while [ ! -e $0/0 ]; do sleep 0.02; done; echo why >&2; exit 3; }; exec \"$@\""
    job = on_terminal("-np", 2, "sh", "-c", ends, tmp_path, *PYTHON, program("bar.py"), 9, tmp_path / "never")
    job.wait_for(lambda s: s.all() == [bar(0, 9, 0)])
    allow(tmp_path, 0)
    assert job.finish() == 3
    rows = job.screen.all()
    assert rows[0] == "[1]<stderr>:why" and rows[1].startswith("hvdrun: rank 1 on localhost")
    assert rows[2] == "hvdrun: stopping the other rank", rows


def test_without_a_terminal_bars_pass_as_they_are(tmp_path):
    for state in range(2):
        allow(tmp_path, state)
    done = hvdrun("-q", "-np", 1, *PYTHON, program("bar.py"), 2, tmp_path, text=False)
    states = [bar(i, 2, 0).removeprefix("[0]<stderr>:") for i in range(3)]
    assert done.stderr.decode() == "".join(f"[0]<stderr>:{text}" for text in ["\r", *(s + "\r" for s in states[:2]), states[2] + "\n"])


def test_bars_have_no_rows_where_another_program_may_print_on_the_same_terminal(tmp_path):
    for state in range(2):
        allow(tmp_path, state)
    job = on_terminal("-q", "-np", 1, *PYTHON, program("bar.py"), 2, tmp_path, stdout=subprocess.PIPE)  # as to tee
    assert job.finish() == 0
    assert "\x1b[J" not in job.raw and job.raw.count("\r[0]") + job.raw.count("\r\x1b[36m[0]") == 3
    assert job.process.stdout.read() == b"".join(b"[0]<stdout>:rank 0 did %d\n" % i for i in range(3))


def test_a_dumb_terminal_is_given_no_sequences(tmp_path):
    allow(tmp_path, 0)
    job = Terminal(["env", "TERM=dumb", HVDRUN, "-np", 2, *PYTHON, program("bar.py"), 1, tmp_path], env=PLAIN)
    assert job.finish() == 0
    assert "\x1b" not in job.raw


def test_the_report_of_a_failure_quotes_only_the_newest_state_of_a_bar():
    script = r"i=0; while [ $i -lt 99 ]; do printf '\r%d%%' $i >&2; i=$((i+1)); done; echo >&2; echo why >&2; exit 3"
    # Of two ranks whose equal lines are gathered, as then the report does not rely on what was just shown.
    done = hvdrun("--gather", "-np", 2, "sh", "-c", f"[ $RANK = 1 ] && exec sleep 1000; {script}")
    quoted = [line for line in done.stderr.splitlines() if line.startswith("hvdrun:   ")]
    assert quoted == ["hvdrun:   98%", "hvdrun:   why"]


@pytest.mark.parametrize("arguments, env, colored", [
    ([], {}, True), ([], {"NO_COLOR": "1"}, False), ([], {"NO_COLOR": ""}, True), (["--color", "never"], {}, False),
    (["--color", "always"], {"NO_COLOR": "1"}, True), ([], {"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False),
])
def test_tags_are_coloured_on_a_terminal_unless_it_is_unwanted(arguments, env, colored):
    job = on_terminal(*arguments, "-np", 2, "echo", "x", env={**PLAIN, **env})
    assert job.finish() == 0
    assert ("\x1b[36m[0]<stdout>:\x1b[0mx" in job.raw) == colored
    assert bool(re.search(r"\x1b\[[\d;]*m", job.raw)) == colored
    assert sorted(job.screen.all()[:2]) == ["[0]<stdout>:x", "[1]<stdout>:x"]


def test_colour_is_decided_for_each_stream():
    job = on_terminal("-q", "-np", 1, "sh", "-c", "echo out; echo err >&2", stderr=subprocess.PIPE)
    assert job.finish() == 0
    assert "\x1b[36m[0]<stdout>:" in job.raw
    assert job.process.stderr.read() == b"[0]<stderr>:err\n"


@pytest.mark.parametrize("force, colored", [("1", True), ("0", False), ("", False)])
def test_clicolor_force_colours_a_pipe(force, colored):
    done = hvdrun("-np", 1, "echo", "x", env={**PLAIN, "CLICOLOR_FORCE": force})
    assert done.stdout.startswith("\x1b[36m") == colored


@pytest.fixture
def slow_hosts(tmp_path):
    """--rsh words by which host b is reached once the file "go" is there."""
    script = tmp_path / "reach"
    script.write_text(f"#!/bin/sh\nhost=$1; shift\n[ $host = b ] && while [ ! -e {tmp_path}/go ]; do sleep 0.05; done\nexec \"$@\"\n")
    script.chmod(0o755)
    return ["--rsh", f"{script} {{host}}", "-H", "a:1,b:1", "-np", 2], lambda: (tmp_path / "go").touch()


def test_a_start_that_takes_long_shows_whom_it_waits_for(slow_hosts):
    words, go = slow_hosts
    job = on_terminal(*words, "echo", "x")
    job.wait_for(lambda s: any(row.startswith("hvdrun: 1/2 hosts connected; slowest: b") for row in s.all()))
    assert len(job.screen.all()) == 1
    go()
    assert job.finish() == 0
    assert not any("slowest" in row for row in job.screen.all())


def test_elsewhere_a_line_tells_how_far_a_slow_start_is_once_for_each_change(slow_hosts):
    words, go = slow_hosts
    job = start(*words, "echo", "x")
    told = read_until(job.stderr, "1/2 hosts connected")  # none may be, where a takes long as well
    go()
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0 and told[-1].startswith("hvdrun: 1/2 hosts connected; slowest: b")
    assert re.search(r"^hvdrun: 2 hosts connected in [\d.]+ s$", err, re.M)


@pytest.mark.parametrize("arguments", [["-q"], ["--json"]])
def test_the_start_is_not_shown_to_those_who_want_no_words(slow_hosts, arguments):
    words, go = slow_hosts
    go()
    job = on_terminal(*arguments, *words, "echo", "x")
    assert job.finish() == 0 and "connected" not in job.raw
