"""What needs no second rank: the package in this process, a job of size 1; and what is true before init."""

import os
import re
import subprocess
import sys
import threading

import pytest
from patience import PATIENCE
import torch

import horovod.torch as hvd
from horovod.common import basics
from horovod.torch import _heap
from horovod.torch._version import demand
from horovod.common.exceptions import HorovodInternalError

QUESTIONS = ["rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"]


@pytest.fixture
def job():
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture
def no_job():
    hvd.shutdown()


@pytest.mark.parametrize("question", QUESTIONS)
def test_before_init_identity_is_a_value_error(no_job, question):
    with pytest.raises(ValueError, match=r"Horovod has not been initialized; use hvd.init\(\)."):
        getattr(hvd, question)()


@pytest.mark.parametrize(
    "operation",
    [
        lambda: hvd.allreduce(torch.ones(2)),
        lambda: hvd.allreduce_async_(torch.ones(2)),
        lambda: hvd.allgather(torch.ones(2)),
        lambda: hvd.broadcast_(torch.ones(2), 0),
        lambda: hvd.barrier(),
        lambda: hvd.grouped_allreduce([torch.ones(2)]),
        lambda: hvd.reducescatter(torch.ones(2)),
        lambda: hvd.alltoall(torch.ones(2)),
        lambda: hvd.join(),
    ],
)
def test_before_init_an_operation_is_an_internal_error(no_job, operation):
    with pytest.raises(HorovodInternalError, match="not been initialized"):
        operation()
    assert not hvd.is_initialized()


def test_before_init_no_process_set_can_be_added(no_job):
    with pytest.raises(ValueError, match=r"Horovod has not been initialized; use hvd.init\(\)."):
        hvd.add_process_set([0])


def test_optimizer_before_init(no_job):
    with pytest.raises(ValueError, match="not been initialized"):
        hvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0))


@pytest.mark.parametrize("wrong", [torch.nn.Linear(1, 1), torch.nn.Linear(1, 1).parameters()])
@pytest.mark.parametrize("use", [hvd.DistributedOptimizer, lambda wrong: hvd.broadcast_optimizer_state(wrong, root_rank=0)])
def test_what_is_no_optimizer_is_refused(job, use, wrong):
    with pytest.raises(ValueError, match=f"a torch optimizer is needed, not {type(wrong).__name__}; as in torch.optim.SGD"):
        use(wrong)


def test_what_wraps_an_optimizer_and_is_none_is_refused(job):
    class Wrapper:
        def __init__(self, base):
            self.base, self.param_groups, self.state = base, base.param_groups, base.state

    wrapper = Wrapper(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0))
    with pytest.raises(ValueError, match="^Wrapper is no subclass of torch.optim.Optimizer; if it wraps an optimizer, give"):
        hvd.DistributedOptimizer(wrapper)


def test_a_process_of_its_own_is_a_job_of_size_1(job):
    assert [getattr(hvd, question)() for question in QUESTIONS] == [0, 1, 0, 1, 0, 1]
    assert torch.equal(hvd.allreduce(torch.ones(2)), torch.ones(2))


def test_internal_error_is_a_runtime_error():
    assert issubclass(HorovodInternalError, RuntimeError) and hvd.HorovodInternalError is HorovodInternalError


def test_init_and_shutdown_20_times(no_job):
    descriptors = None
    for round_number in range(20):
        hvd.init()
        hvd.init()
        assert hvd.allreduce(torch.full((3,), 2.0), name="again")[0] == 2
        hvd.shutdown()
        hvd.shutdown()
        assert not hvd.is_initialized()
        count = len(os.listdir("/proc/self/fd"))
        descriptors = descriptors or count
        assert count <= descriptors, f"file descriptors grow: {descriptors} -> {count} in round {round_number}"


def test_a_handle_of_an_earlier_job_fails(no_job):
    hvd.init()
    handle = hvd.allreduce_async(torch.ones(2), name="old")
    hvd.shutdown()
    hvd.init()
    new = hvd.allreduce_async(torch.zeros(2), name="old")
    with pytest.raises(HorovodInternalError, match="shut down"):
        hvd.synchronize(handle)
    assert torch.equal(hvd.synchronize(new), torch.zeros(2))
    assert hvd.synchronize(handle) is None
    hvd.shutdown()


def test_unsupported_init_arguments(no_job):
    for arguments in ({"comm": [1]}, {"comm": "all"}, {"process_sets": "static"}, {"process_sets": 3}, {"process_sets": [[0]]}):
        with pytest.raises(ValueError):
            hvd.init(**arguments)
        assert not hvd.is_initialized()
    hvd.init(process_sets="dynamic")
    hvd.shutdown()


def test_operations_from_threads(job):
    results = [None] * 8

    def work(index):
        results[index] = hvd.allreduce(torch.full((1000,), float(index)), name=f"thread.{index}")[0].item()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == list(range(8))


def test_capabilities():
    assert hvd.gloo_built() and hvd.gloo_enabled()
    assert not hvd.mpi_enabled() and not hvd.mpi_threads_supported()
    assert hvd.nccl_built() == 0
    assert not (hvd.ddl_built() or hvd.ccl_built() or hvd.cuda_built() or hvd.rocm_built())


def test_ranks_without_mpi_are_told_how_mpi4py_can_be_used(job, monkeypatch, capsys):
    assert not hvd.mpi_threads_supported() and capsys.readouterr().err == ""
    monkeypatch.setattr(basics, "size", lambda: 2)
    assert not hvd.mpi_threads_supported()
    assert "start them with it: hvdrun --launcher mpi, horovodrun --mpi, or mpirun" in capsys.readouterr().err


def test_versions_of_torch_that_are_too_old_are_refused_by_name():
    demand(2, 0, for_what="this")
    with pytest.raises(ImportError) as told:
        demand(99, 1, for_what="this", otherwise=", with which that works")
    assert str(told.value) == f"this needs PyTorch 99.1 or later; this is {torch.__version__}, with which that works"


def test_public_names_exist():
    assert all(hasattr(hvd, name) for name in hvd.__all__)
    from horovod.torch.mpi_ops import Average, allreduce, synchronize  # noqa: F401  (scripts do this)

    assert (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product) == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("started", [
    {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}, {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "RANK": "1"}])
def test_a_rank_that_was_started_as_one_of_several_and_runs_alone_says_so_once(started):
    script = "import horovod.torch as hvd; hvd.init(); print(hvd.size())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, **started})
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert re.fullmatch(r"hvd rank 0: warning: \w+ has started 2 .* runs alone; start them with .*hvdrun\n", done.stderr)


def test_exit_without_shutdown_is_clean():
    script = "import torch, horovod.torch as hvd; hvd.init(); hvd.allreduce_async(torch.ones(2)); print('end')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_a_forked_child_may_exit_normally(job):
    child = os.fork()
    if child == 0:
        sys.stdout = sys.stderr = open(os.devnull, "w")
        try:
            sys.exit(0)  # runs the exit handlers under pytest's own; the guard is what is tested
        finally:
            import atexit

            atexit._run_exitfuncs()
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert torch.equal(hvd.allreduce(torch.ones(2)), torch.ones(2))


def test_a_missing_library_is_an_import_error():
    environment = dict(os.environ, HVD_LIBRARY="/nonexistent/libhvd.so")
    script = "import horovod, pathlib, sys; sys.exit((pathlib.Path(horovod.__file__).parent / 'lib').exists())"
    if subprocess.run([sys.executable, "-c", script], env=environment).returncode != 0:
        pytest.skip("the installed package has its library")
    done = subprocess.run(
        [sys.executable, "-c", "import horovod.torch"], env=environment, capture_output=True, text=True
    )
    assert done.returncode != 0 and "ImportError: libhvd.so was not found" in done.stderr


class Libc:
    """Notes what malloc is told."""

    def __init__(self):
        self.told = []

    def mallopt(self, what, value):
        self.told.append((what, value))
        return 1


@pytest.mark.parametrize("name, value", [("MALLOC_TRIM_THRESHOLD_", "1"), ("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=9")])
def test_malloc_keeps_gradients_where_the_user_has_not_told_it_else(monkeypatch, name, value):
    libc = Libc()
    monkeypatch.setattr(_heap.ctypes, "CDLL", lambda _: libc)
    monkeypatch.setattr(_heap, "_is_told", False)
    for each in (*_heap.MALLOC_VARIABLES, "GLIBC_TUNABLES"):
        monkeypatch.delenv(each, raising=False)
    _heap.keep_for([])
    _heap.keep_for([torch.empty(1000), torch.empty(1 << 24, device="meta")])
    assert libc.told == []  # nothing that is worth it
    monkeypatch.setenv(name, value)
    _heap.keep_for([torch.empty(1 << 20)])
    assert libc.told == []
    monkeypatch.delenv(name)
    for _ in range(2):
        _heap.keep_for([torch.empty(1 << 20)])
    assert libc.told == [(-1, -1), (-3, 32 << 20)]
    monkeypatch.setattr(_heap, "_is_told", False)
    monkeypatch.setattr(_heap.ctypes, "CDLL", lambda _: object())  # another C library
    _heap.keep_for([torch.empty(1 << 20)])
