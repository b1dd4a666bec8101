"""How Keras' objects travel to ranks and into files, and what a rank makes of a batch. Needs no Spark session."""

import importlib.util
import os
import pickle
import subprocess
import sys
from types import SimpleNamespace

import cloudpickle
import numpy
import pytest
from patience import PATIENCE

os.environ.setdefault("KERAS_BACKEND", "jax" if importlib.util.find_spec("jax") else "torch")
keras = pytest.importorskip("keras", minversion="3.0")
pytest.importorskip("pyspark", reason="pyspark is not installed here")

from horovod.spark.common.predict import SCALAR, Carrier, Output  # noqa: E402
from horovod.spark.keras import carried, state, train  # noqa: E402
from horovod.spark.keras.callbacks import Scaled  # noqa: E402
from horovod.spark.keras.predictor import KerasPredictor  # noqa: E402


def my_loss(truth, found):
    return keras.ops.mean(keras.ops.square(truth - found), axis=-1)


class MyLoss(keras.losses.Loss):
    def call(self, truth, found):
        return my_loss(truth, found)


def net(outputs=2):
    return keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(outputs)])


def moved(value):
    return pickle.loads(cloudpickle.dumps(value))


def test_a_model_keeps_what_it_was_compiled_with():
    model = net()
    model.compile("sgd", my_loss, metrics=[my_loss], steps_per_execution=3, jit_compile=False, run_eagerly=True)
    again = moved(carried.Saved(model, None)).open()
    assert (again.steps_per_execution, again.jit_compile, again.run_eagerly) == (3, False, True)
    again.test_on_batch(numpy.zeros((2, 4)), numpy.zeros((2, 2)))


def test_a_class_of_the_program_is_found_without_custom_objects():
    loss = carried.unpacked(moved(carried.packed([MyLoss()])), {})[0]
    assert loss.name == "my_loss" and float(loss(numpy.ones((1, 2)), numpy.zeros((1, 2)))) == 1


def test_a_model_has_its_policy_where_it_is_opened():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        packed = carried.Model(net(), None)
    finally:
        keras.config.set_dtype_policy("float32")
    model = moved(packed).open()
    assert keras.config.dtype_policy().name == "float32" and model.dtype_policy.name == "mixed_float16"
    model.compile("sgd", "mse")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


def test_a_probability_becomes_true_from_a_half_on():
    pyarrow = pytest.importorskip("pyarrow")
    values = Output("x", SCALAR).values(numpy.array([[0.1], [0.5], [0.9]], numpy.float32), pyarrow.bool_())
    assert values.to_pylist() == [False, True, True]


def test_labels_have_the_shapes_that_are_told():
    plan = SimpleNamespace(feature_cols=["x"], label_cols=["y"], sample_weight_col=None, label_shapes=[[-1, 2, 3]])
    batches = train.Batches(plan, net())
    _, labels = batches({"x": numpy.zeros((5, 4)), "y": numpy.zeros((5, 6))})
    assert labels.shape == (5, 2, 3)
    with pytest.raises(ValueError, match="'y' has rows of"):
        batches({"x": numpy.zeros((5, 4)), "y": numpy.zeros((5, 7))})


def test_a_dict_of_outputs_is_in_the_order_of_the_models_outputs():
    inputs = keras.layers.Input((4,))
    model = keras.Model(inputs, {"b": keras.layers.Dense(3)(inputs), "a": keras.layers.Dense(1)(inputs)})
    found = KerasPredictor(carried.Model(model, None), keras.config.backend(), "float32", ["x"])(
        {"x": numpy.zeros((5, 4), numpy.float32)}
    )
    assert [array.shape[1] for array in found] == [tensor.shape[1] for tensor in model.outputs]


def test_a_model_is_called_with_the_drivers_backend_in_a_process_that_was_told_none(tmp_path):
    class Twice(keras.layers.Layer):  # of the program's own: it travels by value, and inherits from Keras
        def call(self, inputs):
            return 2 * inputs

    model = keras.Sequential([keras.layers.Input((4,)), Twice()])
    carrier = Carrier(KerasPredictor(carried.Model(model, {"Twice": Twice}), keras.config.backend(), "float32", ["x"]), None)
    (tmp_path / "carrier").write_bytes(cloudpickle.dumps(carrier))
    script = (
        "import pickle, sys, numpy\n"
        "predictor = pickle.load(open(sys.argv[1], 'rb')).get()\n"
        "assert 'keras' not in sys.modules\n"
        "print(predictor({'x': numpy.ones((1, 4))})[0].tolist(), sys.modules['keras'].config.backend())\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    told = subprocess.run([sys.executable, "-c", script, tmp_path / "carrier"], env={**environment, "KERAS_HOME": str(tmp_path)},
                          capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip
    assert told.stdout.split("]] ") == ["[[2.0, 2.0, 2.0, 2.0", keras.config.backend() + "\n"], told.stderr


def test_a_schedule_is_scaled_and_can_be_saved():
    schedule = Scaled(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5), 4)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert float(again(10)) == pytest.approx(0.2)


def test_a_checkpoint_of_another_model_is_refused():
    one, other = net(2), net(3)
    one.compile("sgd", "mse")
    content = state.packed(one, 0.1, {})
    state.check_fits(one, content, "r")
    with pytest.raises(ValueError, match="run r cannot be continued"):
        state.check_fits(other, content, "r")


def test_the_best_epoch_is_by_what_the_callback_monitors():
    more = SimpleNamespace(monitor="val_accuracy", monitor_op=keras.ops.greater)
    logs = {"val_loss": 3.0, "val_accuracy": 0.5}
    assert (train.score(None, logs), train.score(more, logs), train.score(more, {})) == (3.0, -0.5, None)
    assert train.score(SimpleNamespace(monitor="val_loss", monitor_op=keras.ops.less), logs) == 3.0


# Each says what would go to a GPU if there were one.
ON_THE_CPU = {
    "tensorflow": """
import tensorflow
hidden = []
tensorflow.config.set_visible_devices = lambda *told: hidden.append(told)
predict()
print(hidden == [([], "GPU")])
def begun(*_):
    raise RuntimeError("Visible devices cannot be modified after being initialized")
tensorflow.config.set_visible_devices = begun
predict()
""",
    "jax": """
import jax
predict()
print(jax.config.jax_platforms == "cpu" == jax.default_backend())
predict()
""",
    "torch": """
os.environ["KERAS_TORCH_DEVICE"] = "meta"  # a device of which no values come back
predict()
print(os.environ["KERAS_TORCH_DEVICE"] == "meta")
import keras.src.backend.torch.core as core
core.DEFAULT_DEVICE = "meta"  # somebody has imported Keras before
predict()
""",
}


@pytest.mark.parametrize("backend", ON_THE_CPU)
def test_a_model_leaves_the_gpus_of_an_executor_alone(backend, tmp_path):
    """Workers of Spark stay, and a framework keeps what it has taken of a GPU."""
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed here")
    predictor = KerasPredictor(carried.Model(net(), None), backend, "float32", ["x"])
    (tmp_path / "predictor").write_bytes(cloudpickle.dumps(predictor))
    script = (
        "import os, pickle, sys, numpy\n"
        "def predict():\n"
        "    predictor = pickle.load(open(sys.argv[1], 'rb'))\n"
        "    print(numpy.isfinite(predictor({'x': numpy.ones((1, 4))})[0]).all())\n"
    )
    told = subprocess.run([sys.executable, "-c", script + ON_THE_CPU[backend], tmp_path / "predictor"],
                          env={**os.environ, "KERAS_HOME": str(tmp_path)}, capture_output=True, text=True,
                          timeout=PATIENCE)  # fmt: skip
    assert told.stdout.split() == ["True"] * 3, told.stderr
