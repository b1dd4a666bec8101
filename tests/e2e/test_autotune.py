"""Settings that are looked for while a job runs."""

import csv

from hvdrun import hvdrun

# Each of them makes 250 KiB go the coordinator's way a few hundred times.
BENCH = ["bench", "allreduce", "-np", 2, "--min", "250K", "--max", "250K", "--iters", 400]
TUNE = ["--autotune", "--autotune-warmup-samples", 1, "--autotune-steps-per-sample", 2, "--autotune-bayes-opt-max-samples", 6,
        "--autotune-gaussian-process-noise", "0.5"]
COLUMNS = ["hierarchical_allreduce", "hierarchical_allgather", "torus_allreduce", "cache_enabled", "cycle_time_ms",
           "tensor_fusion_threshold", "score"]


def rows(path):
    with open(path) as file:
        header, *lines = csv.reader(file)
    assert header == COLUMNS
    return [dict(zip(COLUMNS, map(float, line))) for line in lines]


def test_autotune_tries_settings_and_stays_with_the_best(tmp_path):
    done = hvdrun(*BENCH, *TUNE, "--autotune-log-file", tmp_path / "log.csv", "--log-level", "INFO")
    assert done.returncode == 0, done.stderr
    tried = rows(tmp_path / "log.csv")
    assert len(tried) == 7  # and the best of them again
    assert tried[-1] in tried[:-1]
    assert (tried[0]["cycle_time_ms"], tried[0]["tensor_fusion_threshold"]) == (1, 128), "first what it is without"
    assert len({(row["cycle_time_ms"], row["tensor_fusion_threshold"]) for row in tried}) > 3
    assert all(row["score"] > 0 for row in tried)
    assert "autotune stays with HOROVOD_FUSION_THRESHOLD=" in done.stderr


def test_autotune_leaves_alone_what_is_set_by_hand(tmp_path):
    done = hvdrun(*BENCH, *TUNE, "--autotune-log-file", tmp_path / "log.csv", "--fusion-threshold-mb", 32)
    assert done.returncode == 0, done.stderr
    assert {row["tensor_fusion_threshold"] for row in rows(tmp_path / "log.csv")} == {32}


def test_a_log_that_cannot_be_written_is_told_and_the_job_goes_on():
    done = hvdrun(*BENCH, *TUNE, "--autotune-log-file", "/nonexistent/log.csv")
    assert done.returncode == 0
    assert "the autotune log /nonexistent/log.csv" in done.stderr
