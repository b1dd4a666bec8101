"""scripts/gpu-check where there is no GPU, and its programs with the fake driver."""

import ctypes
import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import sys
import tarfile

import pytest
from hvdrun import BIN, ROOT
from patience import PATIENCE

SCRIPT = ROOT / "scripts/gpu-check"
FAKE = BIN.parent / "lib/fake"
TESTS, BENCH = BIN / "hvd_gpu_tests", BIN / "hvd_gpu_bench"

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
    times = json.loads(done.stdout)
    assert times["device"] == "fake GPU"
    assert {"one copy", "161 copies", "pack float32", "unpack float32", "pack bfloat16"} < times.keys()


@needs_programs
def test_a_failure_of_the_device_fails_the_tests():
    done = run([TESTS], LD_LIBRARY_PATH=str(FAKE), FAKE_CUDA_FAIL="kernel:5:700")
    assert done.returncode == 1 and "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stdout


@needs_programs
def test_all_parts_run_on_the_fakes_and_one_that_fails_hides_no_other():
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("torch has CUDA here, and loads libraries of its own in the fakes' place; run scripts/gpu-check")
    done = run([SCRIPT, "--no-build", "--minutes", PATIENCE / 60, "--python", sys.executable], LD_LIBRARY_PATH=str(FAKE),
               FAKE_CUDA_FAIL="cuEventElapsedTime:1:700", HVD_GPU_CHECK_FAKES="1")  # fmt: skip
    rows = dict(re.findall(r"^(\S.*?)  +(ok|FAILED|skipped)(?: |$)", done.stdout, re.M))
    assert done.returncode == 1, done.stderr
    assert rows["packing"] == "FAILED"  # as was asked of the fake driver
    assert rows["kernels"] == "ok"
    assert rows["build"] == rows["digits"] == "skipped"
    for name in ("operations, 2 ranks", "must hold: without NCCL all goes through the host",
                 "must hold: a killed rank ends the others' calls, by name"):  # fmt: skip
        assert rows[name] == "ok", f"{name}\n{done.stdout}\n{done.stderr}"
    assert re.fullmatch(r"\d+ passed, \d+ failed, \d+ skipped", done.stdout.splitlines()[-1])


@needs_programs
def test_what_has_no_time_is_skipped_and_the_table_is_shown():
    done = run([SCRIPT, "--no-build", "--minutes", "0", "--python", "/nowhere/python"], LD_LIBRARY_PATH=str(FAKE))
    assert done.returncode == 0, done.stderr
    assert "out of time; see --minutes" in done.stdout and " 0 failed" in done.stdout.splitlines()[-1]


def test_programs_are_packed_for_a_machine_that_cannot_build(tmp_path, monkeypatch):
    script = load_script()
    for path in ("build/lib/libhvd.so.0", "build/bin/hvd_gpu_tests", "build/bin/hvd_gpu_bench"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    (tmp_path / "build/lib/libhvd.so").symlink_to("libhvd.so.0")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "LIBRARY", tmp_path / "build/lib/libhvd.so")
    monkeypatch.setattr(script, "PROGRAMS", tuple(tmp_path / "build/bin" / name for name in ("hvd_gpu_tests", "hvd_gpu_bench")))
    monkeypatch.setattr(script.subprocess, "run", lambda *_, **__: None)
    script.pack(tmp_path / "gpu.tar")
    with tarfile.open(tmp_path / "gpu.tar") as archive:
        assert archive.extractfile("build/lib/libhvd.so").read() == b"build/lib/libhvd.so.0"
        assert {"build/bin/hvd_gpu_tests", "build/bin/hvd_gpu_bench"} < set(archive.getnames())


def test_the_table_counts_what_passed_failed_and_was_skipped(capsys):
    table = load_script().Table()
    table.add("a", True, "x")
    table.add("b", False, "y")
    table.add("c", None, "z")
    table.show()
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 1 skipped"


def test_torch_is_timed_on_resnet50s_gradients(monkeypatch):
    script = load_script()
    asked = []
    monkeypatch.setattr(script, "run", lambda command, **_: asked.append(command) or (0, "{}"))
    assert script.time_torch("python3") == {}
    sizes = json.loads(asked[0][-1])
    assert len(sizes) == 161 and sum(sizes) == 25557032
