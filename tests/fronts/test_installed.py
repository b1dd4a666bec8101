"""The wheel in an environment where nothing of ours was: no checkout, no compiler, and TensorFlow there already."""

import importlib.util
import os
import subprocess
import sys

import pytest
from hvdrun import ROOT
from patience import PATIENCE

SCRIPT = """
import pathlib, sys
import horovod.tensorflow as hvd
import tensorflow as tf
assert sys.prefix in hvd.__file__, hvd.__file__
hvd.init()
total = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum))(tf.constant(hvd.rank() + 1.0))
print("sum", float(total), pathlib.Path(sys.prefix).name)
"""


def run(command, **options):
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(not importlib.util.find_spec("tensorflow"), reason="needs TensorFlow")
def test_two_ranks_from_the_wheel_alone(tmp_path):
    wheel = os.environ.get("HVD_WHEEL")
    if wheel is None:
        builder = ROOT / "build/venv/bin/python"
        if not builder.exists():
            pytest.skip("needs build/venv or HVD_WHEEL")
        # scripts/build has compiled it there.
        settings = ["-C", f"build-dir={ROOT}/build/wheel"]
        run([builder, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", *settings, "-w", tmp_path, ROOT])
        (wheel,) = tmp_path.glob("hvdrun-*.whl")
    run([sys.executable, "-m", "venv", tmp_path / "bare"])
    python = tmp_path / "bare/bin/python"
    environment = {**os.environ, "CC": "false", "CXX": "false", "TF_CPP_MIN_LOG_LEVEL": "3", "PATH": f"{python.parent}:/usr/bin:/bin"}
    environment.pop("PYTHONPATH", None)
    run([python, "-m", "pip", "install", "--no-index", "--no-deps", "--only-binary", ":all:", wheel], env=environment, cwd=tmp_path)
    # TensorFlow is found where this test finds it, after all that the bare environment has.
    (libraries,) = (tmp_path / "bare/lib").glob("python*/site-packages")
    (libraries / "zz_tensorflow.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    output = run([python.parent / "hvdrun", "-np", 2, python, script], env=environment, cwd=tmp_path)
    assert output.count("sum 3.0 bare") == 2, output
