"""The metrics of a running job, as node_exporter's textfile collector reads them."""

import re
import time

from hvdrun import hvdrun, start
from patience import PATIENCE

SAMPLE = re.compile(r'^[a-z_]+(\{[a-z]+="(?:[^"\\\n]|\\.)*"(,[a-z]+="(?:[^"\\\n]|\\.)*")*\})? -?[0-9.e+-]+$')


def value_of(text, name, **labels):
    for line in text.splitlines():
        if line.startswith(name + "{") and all(f'{key}="{value}"' in line for key, value in labels.items()):
            return float(line.rpartition(" ")[2])
    return None


def read_when(path, is_there):
    """The file's text as soon as it has what is wanted. Every text on the way is a whole one."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if path.exists():
            text = path.read_text()
            assert text.endswith("\n") and text.startswith("# HELP ")
            if is_there(text):
                return text
        time.sleep(0.05)
    raise AssertionError("the metrics never had it")


def test_metrics_tell_what_ranks_use_while_they_run_and_how_they_ended(tmp_path):
    path, go = tmp_path / "job.prom", tmp_path / "go"
    job = start("--metrics", path, "-np", 2, "sh", "-c", f"echo line; while [ ! -e {go} ]; do sleep 0.1; done")
    text = read_when(path, lambda text: value_of(text, "hvdrun_rank_memory_bytes", rank=1))
    assert value_of(text, "hvdrun_ranks", state="running") == 2
    assert value_of(text, "hvdrun_rank_processes", rank=0) >= 1
    assert value_of(text, "hvdrun_node_memory_bytes") > value_of(text, "hvdrun_node_memory_free_bytes") > 0
    families = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert kind in ("gauge", "counter") and (kind == "counter") == name.endswith("_total") and name not in families
            families.add(name)
        elif not line.startswith("# HELP "):
            assert SAMPLE.match(line) and line.partition("{")[0] in families, line
    go.touch()
    job.communicate(timeout=PATIENCE)
    assert job.returncode == 0
    last = path.read_text()
    assert value_of(last, "hvdrun_ranks", state="ended") == 2
    assert value_of(last, "hvdrun_rank_output_lines_total", rank=1) == 1
    assert [entry.name for entry in tmp_path.iterdir() if entry.suffix == ".new"] == []


def test_a_job_whose_metrics_cannot_be_written_runs_and_says_so_once(tmp_path):
    done = hvdrun("--metrics", tmp_path / "missing/job.prom", "-np", 2, "sh", "-c", "sleep 1.5; echo done")
    assert done.returncode == 0 and done.stdout.count("done") == 2
    assert done.stderr.count("--metrics: cannot write") == 1 and "the job goes on" in done.stderr
