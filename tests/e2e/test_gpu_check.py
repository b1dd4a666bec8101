"""scripts/gpu-check where there is no GPU, and its programs with the fake driver."""

import ctypes
import importlib.machinery
import importlib.util
import json
import os
import subprocess

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
