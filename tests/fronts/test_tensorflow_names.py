"""The names and arguments that TensorFlow and Keras scripts written for Horovod use."""

import importlib
import importlib.metadata
import inspect
import os
import subprocess
import sys

import pytest
from patience import PATIENCE

pytest.importorskip("tensorflow")

G = "process_set"
C = "compression"
DEVICES = "device_dense, device_sparse"
PP = "prescale_factor, postscale_factor"
TENSORFLOW = {
    "allreduce": f"tensor, average, {DEVICES}, {C}, op, {PP}, name, {G}, ignore_name_scope",
    "grouped_allreduce": f"tensors, average, {DEVICES}, {C}, op, {PP}, {G}, ignore_name_scope, name",
    "allgather": f"tensor, name, ignore_name_scope, {G}",
    "grouped_allgather": f"tensors, name, ignore_name_scope, {G}",
    "broadcast": f"tensor, root_rank, name, ignore_name_scope, {G}",
    "broadcast_": f"variables, root_rank, name, {G}",
    "alltoall": f"tensor, splits, name, ignore_name_scope, {G}",
    "reducescatter": f"tensor, device_dense, {C}, op, name, {G}, ignore_name_scope, {PP}",
    "grouped_reducescatter": f"tensors, device_dense, {C}, op, {G}, {PP}",
    "join": "",
    "size_op": "process_set_id, name",
    "process_set_included_op": "process_set_id, name",
    "local_size_op": "name",
    "rank_op": "name",
    "local_rank_op": "name",
    "broadcast_variables": f"variables, root_rank, {G}, inplace",
    "broadcast_object": f"obj, root_rank, session, name, {G}",
    "broadcast_object_fn": f"root_rank, session, name, {G}",
    "allgather_object": f"obj, session, name, {G}",
    "broadcast_global_variables": "root_rank",
    "BroadcastGlobalVariablesHook": "root_rank, device",
    "DistributedOptimizer": f"optimizer, name, use_locking, {DEVICES}, {C}, sparse_as_dense, backward_passes_per_step, op, "
    f"gradient_predivide_factor, average_aggregated_gradients, num_groups, groups, {G}, scale_local_gradients",
    "DistributedGradientTape": f"gradtape, {DEVICES}, {C}, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups, "
    f"{G}, scale_local_gradients",
}
DATA = {
    "tf_data_service": "compute_config, rank",
    "send_to_data_service": "dataset, compute_config, rank, size, processing_mode, reuse_dataset, round_robin",
    "compute_worker_fn": "compute_config, timeout",
    "TfDataServiceConfig": "dispatchers, workers_per_dispatcher, dispatcher_side, addresses, key, timeout",
    "TfDataServiceConfig.compute_client": "self, verbose",
    "TfDataServiceConfig.write": "self, filename",
    "TfDataServiceConfig.read": "filename, wait_for_file_creation, timeout",
}
PARTIAL = (
    f"optimizer, name, {DEVICES}, {C}, sparse_as_dense, gradient_predivide_factor, op, backward_passes_per_step, "
    f"average_aggregated_gradients, groups, {G}, local_layers, scale_local_gradients"
)
KERAS = {
    "allgather": "value, name",
    "broadcast": "value, root_rank, name",
    "reducescatter": "value, name, op",
    "broadcast_global_variables": "root_rank",
    "load_model": f"filepath, custom_optimizers, custom_objects, {C}, legacy_opts",
    "PartialDistributedOptimizer": PARTIAL,
    "callbacks.BestModelCheckpoint": "monitor, verbose, save_weights_only, mode, save_freq",
    "callbacks.BroadcastGlobalVariablesCallback": "root_rank, device, local_variables",
    "callbacks.MetricAverageCallback": "device",
    "callbacks.LearningRateScheduleCallback": "initial_lr, multiplier, start_epoch, end_epoch, staircase, momentum_correction, "
    "steps_per_epoch",
    "callbacks.LearningRateWarmupCallback": "initial_lr, warmup_epochs, momentum_correction, steps_per_epoch, verbose",
    "elastic.CommitStateCallback": "state, batches_per_commit",
    "elastic.UpdateBatchStateCallback": "state",
    "elastic.UpdateEpochStateCallback": "state",
}
TF_KERAS = {
    **KERAS,
    "DistributedOptimizer": f"optimizer, name, {DEVICES}, {C}, sparse_as_dense, gradient_predivide_factor, op, "
    f"backward_passes_per_step, average_aggregated_gradients, num_groups, groups, {G}, scale_local_gradients",
}
TAPE = {
    "gradient": "target, sources, output_gradients, use_generic_names",
    "register_local_source": "source",
    "get_local_and_global_gradients": "target, sources, output_gradients, use_generic_names",
}
MODULES = {"tensorflow": TENSORFLOW, "tensorflow.data": DATA, "tensorflow.data.compute_service": DATA, "tensorflow.keras": TF_KERAS, "keras": KERAS}


@pytest.mark.parametrize("module, name", [(module, name) for module, names in MODULES.items() for name in names])
def test_arguments(module, name):
    value = importlib.import_module(f"horovod.{module}")
    for part in name.split("."):
        value = getattr(value, part)
    found = [p.name for p in inspect.signature(value).parameters.values()]
    expected = MODULES[module][name].split(", ") if MODULES[module][name] else []
    assert found[: len(expected)] == expected  # arguments of our own come after those


@pytest.mark.parametrize(
    "module",
    """tensorflow.compression tensorflow.data.compute_worker tensorflow.elastic tensorflow.functions tensorflow.keras.callbacks
    tensorflow.keras.elastic keras.callbacks keras.elastic tensorflow.mpi_ops tensorflow.sync_batch_norm tensorflow.util runner.common.service.compute_service
    runner.common.util.env runner.common.util.secret runner.common.util.timeout""".split(),
)
def test_modules_that_scripts_import(module):
    assert importlib.import_module(f"horovod.{module}").__doc__


def test_names_of_the_study():
    import horovod.tensorflow as hvd

    assert hvd.tf is sys.modules["tensorflow"] and hvd.nccl_built() == 0
    for name in "_executing_eagerly check_num_rank_power_of_2 gpu_available handle_average_backwards_compatibility sycl_built".split():
        assert callable(getattr(hvd, name))
    for name in "_allreduce _grouped_allreduce _reducescatter _grouped_reducescatter _normalize_name".split():
        assert callable(getattr(hvd.mpi_ops, name))
    assert callable(hvd.mpi_ops._basics._get_process_set_ids_and_ranks)
    tape = importlib.import_module("horovod.tensorflow._tape")._DistributedGradientTape
    for name, arguments in TAPE.items():
        assert ", ".join(inspect.signature(getattr(tape, name)).parameters).startswith("self, " + arguments), name


def test_programs_recognise_a_distributed_optimizer_by_its_class():
    import horovod.tensorflow as hvd

    hvd.init()
    optimizer = importlib.import_module("tensorflow").compat.v1.train.AdamOptimizer()
    assert not isinstance(optimizer, hvd._DistributedOptimizer)
    assert isinstance(hvd.DistributedOptimizer(optimizer), hvd._DistributedOptimizer)


@pytest.mark.parametrize("more", [(), ("Average", 1.0, 0), ("Sum", 1.0, None)])
def test_gradients_of_programs_own_optimizers_are_reduced(monkeypatch, more):
    import horovod.tensorflow as hvd

    tf, module, reduced = importlib.import_module("tensorflow"), importlib.import_module("horovod.tensorflow._reduce"), []
    allreduce = module.allreduce
    monkeypatch.setattr(module, "allreduce", lambda gradient, **options: reduced.append(gradient) or allreduce(gradient, **options))
    hvd.init()
    if more:
        more = (getattr(hvd, more[0]), *more[1:])
    reduce = hvd._make_allreduce_grads_fn("own", "", "", hvd.Compression.none, False, *more)
    dense, nothing = reduce([tf.constant([2.0]), None])
    assert dense.numpy() == [2.0] and nothing is None
    assert len(reduced) == 1  # groups=0 means no groups, and not that nothing is reduced


def test_keras_is_there_without_an_import_of_its_own():
    script = "import horovod.tensorflow as hvd; print(hvd.keras.DistributedOptimizer.__name__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "DistributedOptimizer\n", done.stderr


def test_a_tensorflow_that_is_too_old_is_refused(monkeypatch):
    import tensorflow as tf

    from horovod.common.exceptions import HorovodVersionMismatchError
    from horovod.tensorflow import _library

    monkeypatch.setattr(tf, "__version__", "2.12.1")
    with pytest.raises(HorovodVersionMismatchError, match="needs TensorFlow 2.13 or later, and this is 2.12.1: pip install -U tensorflow"):
        _library._load()


def test_legacy_keras_needs_no_keras_3():
    pytest.importorskip("tf_keras")
    script = (
        "import sys; sys.modules['keras'] = None\n"
        "import tensorflow as tf, horovod.tensorflow as hvd, horovod.tensorflow.keras\n"
        "hvd.init(); hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)); print('made')"
    )
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "TF_USE_LEGACY_KERAS": "1"}, capture_output=True,
                          text=True, timeout=PATIENCE)  # fmt: skip
    assert done.stdout == "made\n", done.stderr


@pytest.mark.parametrize(
    "script",
    [
        "import horovod.keras as hvd, horovod.tensorflow.keras as expected\nfrom tensorflow.keras import optimizers",
        "from keras import optimizers\nimport horovod.keras as hvd, horovod._keras3 as expected",
    ],
    ids=["legacy", "3"],
)
def test_horovod_keras_is_for_the_keras_that_a_script_uses(script):
    pytest.importorskip("tf_keras")
    if int(importlib.metadata.version("keras").partition(".")[0]) < 3:
        pytest.skip("needs Keras 3")
    script += (
        "\nhvd.init(); hvd.DistributedOptimizer(optimizers.SGD(0.1))\n"
        "assert hvd.callbacks.MetricAverageCallback is expected.callbacks.MetricAverageCallback\n"
        "assert hvd.elastic.KerasState is expected.elastic.KerasState"
    )
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "TF_USE_LEGACY_KERAS": "1"}, check=True, timeout=PATIENCE)


def test_an_optimizer_of_the_other_keras_is_refused_with_what_to_write():
    tf_keras = pytest.importorskip("tf_keras")
    import horovod.keras
    import horovod.tensorflow

    if os.environ.get("TF_USE_LEGACY_KERAS") or int(importlib.metadata.version("keras").partition(".")[0]) < 3:
        pytest.skip("needs Keras 3")
    for front in (horovod.keras, horovod.tensorflow):
        with pytest.raises(ValueError, match="TF_USE_LEGACY_KERAS=1"):
            front.DistributedOptimizer(tf_keras.optimizers.SGD(0.1))


def test_an_optimizer_of_keras_3_is_refused_where_legacy_keras_was_asked_for():
    pytest.importorskip("tf_keras")
    if int(importlib.metadata.version("keras").partition(".")[0]) < 3:
        pytest.skip("needs Keras 3")
    script = (
        "import horovod.keras as hvd\nimport keras\nhvd.init()\n"
        "try:\n    hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))\n"
        "except ValueError as error:\n    assert 'import keras before horovod.keras' in str(error), error\n"
        "else:\n    raise AssertionError('not refused')"
    )
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "TF_USE_LEGACY_KERAS": "1"}, check=True, timeout=PATIENCE)
