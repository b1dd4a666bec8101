"""scripts/gpu-check where there is no GPU, and its programs with the fake driver."""

import argparse
import ctypes
import importlib.machinery
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tarfile

import pytest
from hvdrun import BIN, ROOT
from patience import PATIENCE

SCRIPT = ROOT / "scripts/gpu-check"
FAKE = BIN.parent / "lib/fake"
TESTS, BENCH = BIN / "hvd_gpu_tests", BIN / "hvd_gpu_bench"

NOTICE = "rank 0 and rank 1 share a GPU, which NCCL can from 2.30 on, and this is 2.28.9"

needs_programs = pytest.mark.skipif(
    not (TESTS.exists() and FAKE.exists()), reason="built without the CUDA toolkit, so there is no device code to try"
)


def run(command, **environment):
    return subprocess.run([str(part) for part in command], env=dict(os.environ, **environment), capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=PATIENCE)  # fmt: skip


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
        return True
    except OSError:
        return False


def rows_of(table):
    """What each row says, by its name."""
    return {name: (word, text) for name, word, text in re.findall(r"^(\S.*?)  +(ok|FAILED|skipped) *(.*)$", table, re.M)}


def load_script():
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(module)
    return module


def test_without_a_gpu_everything_is_skipped_and_counted():
    if has_driver():
        pytest.skip("this machine has a CUDA driver; run scripts/gpu-check")
    done = run([SCRIPT])
    assert done.returncode == 77
    assert "there is no GPU on this machine" in done.stderr and "no CUDA driver" in done.stderr
    checks = load_script().CHECKS
    assert done.stdout.splitlines()[-1] == f"0 passed, 0 failed, {len(checks)} skipped"
    assert all(f"{check} " in done.stdout for check in checks)


@needs_programs
def test_a_driver_without_devices_is_no_gpu():
    done = run([SCRIPT], LD_LIBRARY_PATH=str(FAKE), FAKE_CUDA_DEVICES="0")
    assert done.returncode == 77
    assert "the CUDA driver says 100" in done.stderr


@needs_programs
def test_programs_without_a_gpu_say_so():
    if has_driver():
        pytest.skip("this machine has a CUDA driver; run scripts/gpu-check")
    for program in (TESTS, BENCH):
        done = run([program])
        assert done.returncode == 77 and done.stdout.startswith("skipped: no CUDA driver")


@needs_programs
def test_the_kernels_with_the_fake_driver():
    done = run([TESTS], LD_LIBRARY_PATH=str(FAKE))
    assert done.returncode == 0 and " 0 failed" in done.stdout, done.stdout


@needs_programs
def test_the_timing_with_the_fake_driver():
    done = run([BENCH, 2, 1000], LD_LIBRARY_PATH=str(FAKE))
    assert done.returncode == 0, done.stdout
    told = json.loads(done.stdout)
    assert told["device"] == "fake GPU"
    assert {"one copy", "161 copies", "161 copies, idle stream", "pack float32", "unpack float32, divided"} < told["times"].keys()
    assert all(low <= median <= high for low, median, high in told["times"].values())
    assert told["late"].keys() == told["times"].keys() and told["late"]["161 copies, idle stream"] == 0


@needs_programs
def test_a_failure_of_the_device_fails_the_tests():
    done = run([TESTS], LD_LIBRARY_PATH=str(FAKE), FAKE_CUDA_FAIL="kernel:5:700")
    assert done.returncode == 1 and "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stdout


@needs_programs
def test_all_parts_run_on_the_fakes_and_one_that_fails_hides_no_other():
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("torch has CUDA here, and loads libraries of its own in the fakes' place; run scripts/gpu-check")
    done = run([SCRIPT, "--no-build", "--minutes", PATIENCE / 60, "--each", PATIENCE, "--python", sys.executable],
               LD_LIBRARY_PATH=str(FAKE), FAKE_CUDA_FAIL="cuEventElapsedTime:1:700", FAKE_NCCL_VERSION="22809", HVD_GPU_CHECK_FAKES="1")  # fmt: skip
    rows = rows_of(done.stdout)
    assert done.returncode == 1, done.stderr
    assert rows["packing"][0] == "FAILED"  # as was asked of the fake driver
    assert rows["kernels"][0] == "ok"
    assert rows["build"][0] == rows["digits, 1 rank"][0] == rows["packing by torch"][0] == "skipped"
    for name, way in {"operations, 2 ranks": f"cases; through the host: {NOTICE}", "latency, 1 rank": "; by NCCL 2.28.9",
                      "must hold: without NCCL all goes through the host": "'operations, 2 ranks' went through the host anyway",
                      "must hold: a killed rank ends the others' calls, by name": f"; through the host: {NOTICE}"}.items():  # fmt: skip
        assert rows[name][0] == "ok" and rows[name][1].endswith(way), f"{name}\n{done.stdout}\n{done.stderr}"
    assert re.fullmatch(r"\d+ passed, \d+ failed, \d+ skipped", done.stdout.splitlines()[-1])


@needs_programs
def test_what_has_no_time_is_skipped_and_the_table_is_shown():
    done = run([SCRIPT, "--no-build", "--minutes", "0", "--python", "/nowhere/python"], LD_LIBRARY_PATH=str(FAKE))
    assert done.returncode == 0, done.stderr
    assert "out of time; see --minutes" in done.stdout and " 0 failed" in done.stdout.splitlines()[-1]


def test_programs_are_packed_for_a_machine_that_cannot_build(tmp_path, monkeypatch, capsys):
    script = load_script()
    for path in ("build/lib/libhvd.so.0", "build/lib/libhvd_xla.so", "build/bin/hvd_gpu_tests", "build/bin/hvd_gpu_bench"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    (tmp_path / "build/lib/libhvd.so").symlink_to("libhvd.so.0")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "PACKED", tmp_path / "build/packed")
    monkeypatch.setattr(script, "LIBRARY", tmp_path / "build/lib/libhvd.so")
    monkeypatch.setattr(script, "XLA_LIBRARY", tmp_path / "build/lib/libhvd_xla.so")
    monkeypatch.setattr(script, "PROGRAMS", tuple(tmp_path / "build/bin" / name for name in ("hvd_gpu_tests", "hvd_gpu_bench")))
    monkeypatch.setattr(script.subprocess, "run", lambda *_, **__: argparse.Namespace(stdout="1234567\n"))
    script.pack(tmp_path / "gpu.tar")
    with tarfile.open(tmp_path / "gpu.tar") as archive:
        assert archive.extractfile("build/lib/libhvd.so").read() == b"build/lib/libhvd.so.0"
        assert b"1234567" in archive.extractfile("build/packed").read()
        assert {"build/bin/hvd_gpu_tests", "build/bin/hvd_gpu_bench"} < set(archive.getnames())
    assert "tar -xf gpu.tar && scripts/gpu-check" in capsys.readouterr().out


def test_the_table_counts_what_passed_failed_and_was_skipped(capsys):
    table = load_script().Table()
    table.add("a", True, "x")
    table.add("b", False, "y")
    table.add("c", None, "z")
    table.show()
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 1 skipped"


def test_torch_is_timed_on_resnet50s_gradients():
    sizes = load_script().resnet50_sizes()
    assert len(sizes) == 161 and sum(sizes) == 25557032


def test_what_was_packed_is_used_and_nothing_built(tmp_path, monkeypatch):
    script = load_script()
    (tmp_path / "packed").write_text("the programs of 1234567 are used\n")
    monkeypatch.setattr(script, "PACKED", tmp_path / "packed")
    monkeypatch.setattr(script, "run", lambda *_, **__: pytest.fail("something is built"))
    job = script.Job(argparse.Namespace(no_build=False))
    script.check_build(job)
    assert job.table.rows == [("build", "skipped", "the programs of 1234567 are used; remove build/packed to build here")]


def told_by_ranks(script, monkeypatch, **told):
    """Ranks whose commands tell this."""
    ranks = script.Ranks(script.Table(), "python3", 22809, {})
    monkeypatch.setattr(script.commands, "run", lambda *_, **__: script.commands.Ran(0, json.dumps(told)))
    return ranks


FINE = {"case_a": "ok", "case_b": "ok"}


def test_a_row_says_by_what_its_data_went(monkeypatch):
    script = load_script()
    by_nccl = told_by_ranks(script, monkeypatch, codes=[0], reports=[FINE], outputs=[""])
    by_nccl.operations(1)
    assert by_nccl.table.rows == [("operations, 1 rank", "ok", "2 of 2 cases; by NCCL 2.28.9")]
    outputs = [f"[WARNING] tensors on GPUs go through the hosts' memory: {NOTICE}\n", ""]
    shared = told_by_ranks(script, monkeypatch, codes=[0, 0], reports=[FINE, FINE], outputs=outputs)
    shared.operations(2)
    monkeypatch.setattr(script.commands, "run", lambda *_, **__: pytest.fail("the same is run again"))
    shared.host()
    assert shared.table.rows == [
        ("operations, 2 ranks", "ok", f"2 of 2 cases; through the host: {NOTICE}"),
        ("must hold: without NCCL all goes through the host", "ok", "'operations, 2 ranks' went through the host anyway"),
    ]


def test_a_killed_rank_whose_others_say_nothing_is_a_failure(monkeypatch):
    ranks = told_by_ranks(load_script(), monkeypatch, codes=[1, -9, 1], reports=[None] * 3, outputs=["OSError: no", "", ""])
    ranks.killed()
    ((_, word, text),) = ranks.table.rows
    assert word == "FAILED" and text.startswith("0 of the 2 others have said anything; rank 1 has ended with code -9")


def test_a_signal_ends_the_checks_with_the_table(monkeypatch, capsys):
    script = load_script()
    monkeypatch.setattr(script, "why_no_gpu", lambda: None)
    monkeypatch.setattr(script.commands, "adopt_orphans", lambda: None)
    monkeypatch.setattr(script, "check_build", lambda _: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setattr(script, "CHECKS", {"build": lambda job: script.check_build(job), "kernels": script.check_kernels})
    monkeypatch.setattr(sys, "argv", ["gpu-check"])
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert script.main() == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "what remains  FAILED   not tried: a signal has stopped this", "", "0 passed, 1 failed, 0 skipped"]  # fmt: skip


def test_what_several_ranks_say_alike_is_shown_once_and_cut(monkeypatch, capsys):
    script = load_script()
    outputs = [f"Thread 0x{rank}f:\n" + "x" * 3000 + "\nValueError: no\nExtension modules: a, b\n" for rank in range(4)]
    failed = {"case_a": "ok", "case_b": "Traceback: here"}
    ranks = told_by_ranks(script, monkeypatch, codes=[0, 1, 1, -11], reports=[FINE, failed, failed, None], outputs=outputs)
    ranks.operations(4)
    (row,) = ranks.table.rows
    assert row[1:] == ("FAILED", "0 of 2 cases, not case_b; rank 3 has ended with code -11: ValueError: no; by NCCL 2.28.9")
    said = capsys.readouterr().err
    assert said.count("ValueError: no\n") == 1 and said.count("Traceback: here") == 1 and len(said) < 2200
    assert "--- rank 0, rank 1, rank 2, rank 3:\n" in said and "--- rank 1, case_b, rank 2, case_b:\n" in said


# In a process of its own: nothing that this one has started may outlive its commands, and pytest has started others.
HANGS = """
import importlib.machinery, importlib.util, sys
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("gpu_check", sys.argv[1])
check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(check)
check.commands.adopt_orphans()
"""
LEAVES_A_SESSION = """
import os, sys, time
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(writing, str(os.getpid()).encode())
    time.sleep(3000)
print("it is", int(os.read(reading, 20)), flush=True)
time.sleep(float(sys.argv[1]))
"""


def runs(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("seconds, code", [(0, 0), (3000, 124)])
def test_nothing_of_a_command_runs_on_and_its_output_is_told(seconds, code):
    """A session of its own holds the output open, as the ranks do."""
    script = HANGS + (
        f"check.commands.set_clock(60, {3 if code else PATIENCE})\n"
        f"done = check.run([sys.executable, '-c', sys.argv[2], '{seconds}'])\n"
        "print(done.code, done.last_words(), sep=';')"
    )
    done = run([sys.executable, "-c", script, SCRIPT, LEAVES_A_SESSION])
    told = re.fullmatch(rf"{code};{'stopped after 3 s, and said last: ' if code else ''}(?:it is (\d+)|no output)\n", done.stdout)
    assert told, done.stdout + done.stderr
    assert told[1] is None or not runs(told[1])


def test_ranks_that_hang_say_where_and_the_table_comes(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "hangs.py").write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(tmp_path)!r}, os.environ['HVD_RANK']).write_text(str(os.getpid()))\n"
        "time.sleep(3000)\n"
    )
    script = HANGS + (
        "import on_ranks\n"
        "on_ranks.patience = lambda limit: 5\n"
        "on_ranks.CASES = sys.argv[2]\n"
        f"check.commands.set_clock(60, {PATIENCE})\n"
        "job = check.Job(None)\n"
        "job.take_python(sys.executable, 22809)\n"
        "check.check_one(job, 'operations, 2 ranks', check.CHECKS['operations, 2 ranks'])\n"
        "job.table.show()\n"
    )
    done = run([sys.executable, "-c", script, SCRIPT, tmp_path / "hangs.py"])
    word, text = rows_of(done.stdout)["operations, 2 ranks"]
    assert word == "FAILED" and "no end within 5 s; the ranks were at: File " in text, done.stdout + done.stderr
    assert "Fatal Python error: Aborted" in done.stderr and "Extension modules" not in done.stderr
    assert done.stdout.endswith("\n0 passed, 1 failed, 0 skipped\n")
    assert not any(runs((tmp_path / str(rank)).read_text()) for rank in range(2) if (tmp_path / str(rank)).exists())
