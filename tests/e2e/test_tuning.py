"""hvdrun bench --tune FILE, and jobs that HVD_TUNING=FILE tunes."""

import json
import os

import pytest

from hvdrun import hvdrun

KEYS = ["hvd_tuning", "ranks", "nodes", "ranks_per_node", "processor", "quick_bytes", "quick_whole_bytes",
        "quick_read_bytes", "small_bytes", "small_read_bytes", "chunk_bytes", "segment_bytes", "wire_bytes", "pairs_bytes",
        "fusion_bytes"]
SHORT = ["--iters", 1, "--warmup", 0, "--max", "16K"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """What a short measurement of two ranks wrote."""
    path = tmp_path_factory.mktemp("tuning") / "table.json"
    done = hvdrun("bench", "--tune", path, "-np", 2, *SHORT, "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert "# Out of bounds values : 0 OK\n" in done.stdout
    assert f"HVD_TUNING={path} hvdrun" in done.stdout.splitlines()[-1]
    assert list(path.parent.iterdir()) == [path]
    return path


def job_with(tuning, *arguments, level="info", size=2):
    return hvdrun("bench", "allreduce", "-np", size, "--min", 4, "--max", "1M", "--factor", 512, "--iters", 2, *arguments,
                  env={**os.environ, "HVD_TUNING": str(tuning), "HOROVOD_LOG_LEVEL": level})


def changed(table, tmp_path, **choices):
    path = tmp_path / "changed.json"
    path.write_text(json.dumps({**json.loads(table.read_text()), **choices}, indent=1))
    return path


def test_a_table_has_the_placement_and_every_choice(table):
    found = json.loads(table.read_text())
    assert list(found) == KEYS
    assert (found["hvd_tuning"], found["ranks"], found["nodes"], found["ranks_per_node"]) == (1, 2, 1, 2)


def test_a_job_says_that_it_uses_its_table_and_every_rank_gets_it(table, tmp_path):
    path = changed(table, tmp_path, chunk_bytes=131072, quick_bytes=0)
    done = job_with(path)
    assert done.returncode == 0 and "# Out of bounds values : 0 OK\n" in done.stdout
    assert done.stderr.count(f"HVD_TUNING: {path} is in use") == 1
    for rank in (0, 1):
        lines = [line for line in done.stderr.splitlines() if f"hvd rank {rank}: tuned by rank 0: " in line]
        assert len(lines) == 1 and "chunk_bytes 131072" in lines[0] and "quick_bytes 0," in lines[0]


def test_the_table_itself_serves_hosts_that_do_not_have_the_file(table, tmp_path):
    done = job_with(changed(table, tmp_path, chunk_bytes=131072).read_text())
    assert done.returncode == 0 and done.stderr.count("chunk_bytes 131072") == 2


def test_a_table_of_another_placement_is_ignored_with_one_notice(table, tmp_path):
    done = job_with(changed(table, tmp_path, chunk_bytes=131072), size=3, level="warning")
    assert done.returncode == 0 and done.stderr.count("it is ignored") == 1
    assert "was made for 2 ranks on 1 node" in done.stderr and "this job has 3 ranks on 1 node" in done.stderr
    assert "tuned by" not in done.stderr


@pytest.mark.parametrize(("text", "said"), [
    ("garbage", ":1: expected '{'"),
    ("{\n}", ":2: 'hvd_tuning' is missing"),
    ('{\n"chunky": 1}', ":2: 'chunky' is no key of a tuning table"),
])
def test_a_file_that_is_no_table_fails_the_job_by_file_and_line(tmp_path, text, said):
    path = tmp_path / "bad.json"
    path.write_text(text)
    done = job_with(path)
    assert done.returncode == 1 and f"{path}{said}" in done.stderr


@pytest.mark.parametrize(("arguments", "said"), [
    (["allreduce", "--tune", "a.json"], "leave 'allreduce' out"),
    (["tune"], "hvdrun bench --tune FILE"),
    (["--tune", "a.json", "-np", "1"], "one rank has nobody"),
    (["--tune", "/nowhere/a.json", "-np", "2"], "cannot write into /nowhere/"),
    (["--tune", "a.json", "--plot", "a.svg", "-np", "2"], "has no chart"),
])
def test_what_cannot_be_tuned_is_refused_before_anything_starts(arguments, said):
    done = hvdrun("bench", *arguments)
    assert done.returncode == 240 and said in done.stderr and done.stdout == ""


def test_ranks_on_several_hosts_are_tuned_as_one_job(lab2):
    path = lab2.shared / "table.json"
    done = lab2.run("build/bin/hvdrun", "bench", "--tune", str(path), "-np", 4, "-H", "node1:2,node2:2", "--iters", 1,
                    "--warmup", 0, "--max", "256K", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    assert (found["ranks"], found["nodes"], found["ranks_per_node"]) == (4, 2, 2)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"pairs_bytes:up-to", "pairs_bytes:above", "wire_bytes=65536", "wire_bytes=1048576"} <= {row["call"] for row in rows}
