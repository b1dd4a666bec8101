"""The names and arguments that scripts written for Horovod use, and the manual's table of them."""

import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import pytest
import torch
from hvdrun import HVDRUN, ROOT
from patience import PATIENCE

import horovod
import horovod.torch as hvd

G = "process_set"
PP = "prescale_factor, postscale_factor"
SIGNATURES = {
    "allreduce": f"tensor, average, name, compression, op, {PP}, {G}",
    "allreduce_": f"tensor, average, name, op, {PP}, {G}",
    "allreduce_async": f"tensor, average, name, op, {PP}, {G}",
    "allreduce_async_": f"tensor, average, name, op, {PP}, {G}",
    "grouped_allreduce": f"tensors, average, name, compression, op, {PP}, {G}",
    "grouped_allreduce_": f"tensors, average, name, op, {PP}, {G}",
    "grouped_allreduce_async": f"tensors, average, name, op, {PP}, {G}",
    "grouped_allreduce_async_": f"tensors, average, name, op, {PP}, {G}",
    "sparse_allreduce_async": f"tensor, name, op, {G}",
    "allgather": f"tensor, name, {G}",
    "allgather_async": f"tensor, name, {G}",
    "grouped_allgather": f"tensors, name, {G}",
    "grouped_allgather_async": f"tensors, name, {G}",
    "broadcast": f"tensor, root_rank, name, {G}",
    "broadcast_": f"tensor, root_rank, name, {G}",
    "broadcast_async": f"tensor, root_rank, name, {G}",
    "broadcast_async_": f"tensor, root_rank, name, {G}",
    "alltoall": f"tensor, splits, name, {G}",
    "alltoall_async": f"tensor, splits, name, {G}",
    "reducescatter": f"tensor, name, compression, op, {G}, {PP}",
    "reducescatter_async": f"tensor, name, op, {G}, {PP}",
    "grouped_reducescatter": f"tensors, name, compression, op, {G}, {PP}",
    "grouped_reducescatter_async": f"tensors, name, op, {G}, {PP}",
    "join": "device",
    "barrier": G,
    "poll": "handle",
    "synchronize": "handle",
    "broadcast_parameters": "params, root_rank, process_set",
    "broadcast_optimizer_state": "optimizer, root_rank, model, process_set",
    "broadcast_object": f"obj, root_rank, name, {G}",
    "allgather_object": f"obj, name, {G}",
    "SyncBatchNorm": f"num_features, eps, momentum, affine, track_running_stats, {G}",
    "DistributedOptimizer": "optimizer, named_parameters, compression, backward_passes_per_step, op, "
    f"gradient_predivide_factor, num_groups, groups, sparse_as_dense, {G}",
    "init": "comm, process_sets",
    "start_timeline": "file_path, mark_cycles",
    "add_process_set": G,
    "remove_process_set": G,
}
MODULES = """horovod.common.basics horovod.common.elastic horovod.common.exceptions horovod.common.process_sets
horovod.common.util horovod.data horovod.data.data_loader_base horovod.runner horovod.runner.launch horovod.runner.mpi_run
horovod.runner.util.threads horovod.torch.backend horovod.torch.compression horovod.torch.elastic
horovod.torch.elastic.sampler horovod.torch.elastic.state horovod.torch.functions horovod.torch.mpi_lib_v2
horovod.torch.mpi_ops horovod.torch.optimizer horovod.torch.sync_batch_norm""".split()


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments(name):
    assert ", ".join(inspect.signature(getattr(hvd, name)).parameters) == SIGNATURES[name]


@pytest.mark.parametrize("module", MODULES)
def test_modules_that_scripts_import(module):
    assert importlib.import_module(module).__doc__


def test_small_names_that_scripts_take_from_horovods_insides():
    from horovod.common import util

    for name in "check_num_rank_power_of_2 gpu_available handle_average_backwards_compatibility num_rank_is_power_2".split():
        assert callable(getattr(hvd.mpi_ops, name))
    assert hvd.mpi_ops.handle_average_backwards_compatibility(hvd.Sum, None) == hvd.Sum
    assert util.get_average_backwards_compatibility_fun(hvd.mpi_ops)(None, None) == hvd.Average
    for name in "ccl cuda ddl gloo mpi nccl rocm".split():
        assert getattr(util, f"{name}_built")(verbose=True) is not None


def distributed_optimizer(**options):
    import torch

    hvd.init()
    return hvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1), **options)


@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
def test_programs_recognise_a_distributed_optimizer_by_its_class(op):
    """Lightning's strategy wraps what has no "horovod" in it, and a second time is refused."""
    optimizer = distributed_optimizer(op=op)
    assert "horovod" in str(type(optimizer)) and type(optimizer).__name__ == "SGD"
    assert isinstance(optimizer, hvd._DistributedOptimizer) == (op == hvd.Average)


def test_a_distributed_optimizer_says_how_many_passes_it_waits_for():
    optimizer = distributed_optimizer(backward_passes_per_step=2)
    assert optimizer.backward_passes_per_step == 2
    optimizer.set_backward_passes_per_step(3)
    assert optimizer.backward_passes_per_step == 3


def test_optimizers_that_replace_horovods_hooks_are_refused():
    """Their own hooks would never be called, and their ranks would train apart."""
    import torch

    from horovod.torch.optimizer import _DistributedOptimizer

    class Scheduled(_DistributedOptimizer):
        def __init__(self, inner):
            self.inner = inner

    copied = type("SGD", (torch.optim.SGD,), dict(_DistributedOptimizer.__dict__))
    for make in (lambda: Scheduled(distributed_optimizer()), lambda: copied([], None)):
        with pytest.raises(NotImplementedError, match="hvd.DistributedOptimizer.*compression="):
            make()


ABSENT = """horovod.ray.adapter.Adapter horovod.ray.runner.StaticAdapter horovod.ray.elastic_v2.ElasticAdapter
horovod.ray.worker.BaseHorovodWorker horovod.ray.runner.Coordinator.establish_rendezvous
horovod.ray.utils.detect_nics horovod.ray.utils.map_blocking horovod.ray.utils.nics_to_env_var
horovod.runner.elastic.rendezvous.create_rendezvous_handler horovod.runner.http.http_client.put_data_into_kvstore
horovod.runner.http.http_client.read_data_from_kvstore horovod.runner.http.http_server.KVStoreServer
horovod.runner.http.http_server.RendezvousServer horovod.ray.driver_service._driver_fn
horovod.runner.driver.driver_service.HorovodRunDriverService horovod.runner.driver.driver_service.get_common_interfaces
horovod.runner.task.task_service.HorovodRunTaskService horovod.runner.util.network.get_driver_ip
horovod.runner.util.lsf.LSFUtils.get_compute_hosts horovod.runner.util.remote.get_remote_command
horovod.runner.gloo_run.launch_gloo""".split()


@pytest.mark.parametrize("name", ABSENT)
def test_what_is_absent_says_what_to_use(name):
    """Importing is allowed, because programs import what only one of their ways uses."""
    parts = name.split(".")
    length = next(i for i in range(len(parts), 0, -1) if is_module(".".join(parts[:i])))
    with pytest.raises(NotImplementedError, match=f"{name} is not supported.*use horovod.run, .*RayExecutor"):
        functools.reduce(getattr, parts[length:], importlib.import_module(".".join(parts[:length])))(verbose=True)


def is_module(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_what_programs_import_beside_it_is_there(monkeypatch):
    from horovod.ray.runner import BaseHorovodWorker
    from horovod.ray.worker import BaseHorovodWorker as worker
    from horovod.runner.gloo_run import RendezvousServer, get_host_assignments, parse_hosts
    from horovod.runner.util.lsf import LSFUtils

    assert BaseHorovodWorker is worker and RendezvousServer and get_host_assignments and parse_hosts
    monkeypatch.delenv("LSB_JOBID", raising=False)
    assert not LSFUtils.using_lsf()
    monkeypatch.setenv("LSB_JOBID", "7")
    assert LSFUtils.using_lsf()


def test_a_discovery_of_ray_nodes_says_what_a_rank_needs():
    from horovod.ray import elastic, elastic_v2

    for discovery in (elastic.RayHostDiscovery(True, 2, 3), elastic_v2.RayHostDiscovery(True, 2, 3)):
        assert (discovery.use_gpu, discovery.cpus_per_slot, discovery.gpus_per_slot) == (True, 2, 3)
    assert (discovery.cpus_per_worker, discovery.gpus_per_worker) == (2, 3)


def test_horovod_run_is_a_function_and_the_package_that_it_was():
    source = """
import horovod
function = horovod.run
from horovod import run as same
from horovod.run import run, run_func
from horovod.run.http.http_server import RendezvousServer
assert function is same is run
from horovod.run.common.util import secret
import tests_of_run
assert horovod.run(tests_of_run.double, (21,), num_proc=2) == [42, 42]
assert run_func(tests_of_run.double, args=(4,), num_proc=2) == [8, 8]
assert len(secret.make_secret_key()) == 32
import copy, cloudpickle, pickle
import horovod.run as module
import horovod.run.runner, horovod.runner.launch, horovod.runner.common.util.secret
assert secret is horovod.runner.common.util.secret and horovod.run.runner is horovod.runner.launch
assert secret.__spec__.name == secret.__name__ == "horovod.runner.common.util.secret"
assert copy.deepcopy(module) is module and pickle.loads(cloudpickle.dumps(lambda: module))() is module
try:
    import horovod.run.no_such_module
except ModuleNotFoundError as error:
    assert "horovod.runner.no_such_module" in str(error)
else:
    raise AssertionError
"""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "tests_of_run.py").write_text("def double(x):\n    return 2 * x\n")
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=PATIENCE, check=False,
                              env={**os.environ, "PYTHONPATH": folder})  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_absent_names_are_not_there_for_pythons_own_questions():
    from horovod.ray.worker import BaseHorovodWorker

    assert not hasattr(BaseHorovodWorker, "__wrapped__")


def test_horovods_front_for_mxnet_is_refused():
    with pytest.raises(ImportError, match="MXNet has ended; there are horovod.torch"):
        importlib.import_module("horovod.mxnet")


def test_horovod_common_has_the_names_of_before_0_16():
    from horovod.common import check_extension, init, local_rank, local_size, mpi_threads_supported, rank, shutdown, size

    init()
    assert (rank(), size(), local_rank(), local_size()) == (0, 1, 0, 1) and not mpi_threads_supported()
    check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    shutdown()
    with pytest.raises(ImportError, match="no_such_name"):
        from horovod.common import no_such_name  # noqa: F401


PRIVATE = {
    "horovod._keras": "horovod.tensorflow.keras and horovod.keras",
    "horovod._keras.callbacks": "callbacks to derive from",
    "horovod.spark.data_loaders": "ArrowDataModule",
    "horovod.spark.data_loaders.pytorch_data_loaders": "AsyncDataLoaderMixin",
    "horovod.spark.keras.util": "TFKerasUtil.keras",
}


@pytest.mark.parametrize("module", PRIVATE)
def test_modules_that_are_not_here_say_what_to_use(module):
    with pytest.raises(ImportError, match=PRIVATE[module]):
        importlib.import_module(module)


def test_every_public_name_is_documented():
    for name in hvd.__all__:
        value = getattr(hvd, name)
        assert isinstance(value, (int, hvd.ProcessSet)) or inspect.getdoc(value), f"{name} has no docstring"


@pytest.mark.skipif(not os.access(HVDRUN, os.X_OK), reason="hvdrun is not built")
def test_versions():
    """Scripts compare Horovod's; ours is that of the wheel and of the program."""
    assert horovod.__version__ == "0.28.1"
    project = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M)[1]
    program = subprocess.run([HVDRUN, "--version"], capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    assert horovod.hvdrun_version == project == program.split()[-1]


def table():
    """{name: what the manual says of it}."""
    section = (ROOT / "runtime/docs/horovod.md").read_text().split("## Names\n")[1].split("\n## ")[0]
    rows = [row.strip("|").split("|") for row in section.splitlines() if row.startswith("| `")]
    return {name: words for names, words in rows for name in re.findall(r"`(\w+)`", names)}


def test_the_readme_names_what_there_is():
    assert sorted(table()) == sorted(hvd.__all__)


def test_a_timeline_is_written_between_start_and_stop(tmp_path):
    import torch

    hvd.init()
    hvd.start_timeline(tmp_path / "timeline.json", mark_cycles=True)
    hvd.allreduce(torch.ones(1), name="seen")
    hvd.stop_timeline()
    hvd.stop_timeline()
    assert "seen" in (tmp_path / "timeline.json").read_text()
    with pytest.raises(ValueError):
        hvd.start_timeline("/nonexistent/folder/file")
    hvd.shutdown()
    with pytest.raises(ValueError):
        hvd.start_timeline(tmp_path / "timeline.json")


def reduced_in(path):
    """The names of the tensors in a timeline."""
    events = json.loads(path.read_text())
    return [event["args"]["name"] for event in events if event["name"] == "process_name"]


def test_a_timeline_goes_on_in_the_file_that_is_named_again_and_ends_where_another_is(tmp_path, monkeypatch):
    """Horovod's tests start one twice; and jobs with HOROVOD_TIMELINE have scripts that start theirs."""
    monkeypatch.setenv("HOROVOD_TIMELINE", str(tmp_path / "0"))
    hvd.shutdown()
    hvd.init()
    files = [tmp_path / str(number) for number in range(3)]
    for number, path in enumerate(files):
        for again in range(2):
            hvd.start_timeline(path, mark_cycles=False)
            hvd.allreduce(torch.ones(1), name=f"{number}.{again}")
    hvd.stop_timeline()
    names = [reduced_in(path) for path in files]
    assert names == [[f"allreduce.{number}.{again}" for again in range(2)] for number in range(3)]
    hvd.start_timeline(files[0])
    hvd.stop_timeline()
    assert reduced_in(files[0]) == [], "it was ended before, so it begins anew"
    hvd.shutdown()


def test_what_the_readme_calls_refused_is_refused():
    import torch

    hvd.init()
    assert not {name for name, words in table().items() if words.strip().startswith("refused")}
    with pytest.raises(ValueError):
        hvd.shutdown(), hvd.init(comm=[1])
    assert hvd.Compression.bf16 and horovod.run


def test_a_framework_is_asked_for_gpus_by_the_name_that_scripts_import():
    from horovod.common.util import gpu_available

    assert gpu_available("torch") == torch.cuda.is_available() and not gpu_available("mxnet")


def test_a_distributed_optimizer_tells_what_it_was_asked_for():
    hvd.init()
    parameters = [torch.nn.Parameter(torch.zeros(2))]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), op=hvd.Average, gradient_predivide_factor=2.0)
    assert (optimizer.op, optimizer.gradient_predivide_factor, optimizer.sparse_as_dense) == (hvd.Average, 2.0, False)
    assert optimizer.process_set.process_set_id == 0
    optimizer.op = "mine"
    assert optimizer.op == "mine" and not hasattr(optimizer, "nothing")
    optimizer.backward_passes_per_step = 3
    assert optimizer.backward_passes_per_step == 3
    hvd.shutdown()


def test_a_logger_of_rays_warns_once_that_nobody_reads():
    from horovod.ray import ray_logger

    ray_logger.configure(None)
    with pytest.warns(UserWarning, match="reaches nobody"):
        ray_logger.log({"epoch": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ray_logger.log({"epoch": 2}, chief_only=False)


def test_pip_finds_horovod_where_this_package_is_installed():
    """Requirement files name it, and pip would compile the old one."""
    assert importlib.metadata.version("horovod") == f"{horovod.__version__}+hvdrun"
    # horovod[spark] in a list of requirements brings what hvdrun[spark] needs.
    assert 'hvdrun[spark]; extra == "spark"' in importlib.metadata.requires("horovod")
    done = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-index",
                           f"horovod[pytorch]=={horovod.__version__}"], capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip
    assert done.returncode == 0 and "already satisfied: horovod" in done.stdout, done.stderr


def test_horovod_runs_first_module_still_has_run():
    from horovod.run.runner import run

    assert run is horovod.run.run and not importlib.import_module("horovod.runner.launch").lsf.LSFUtils.using_lsf()
