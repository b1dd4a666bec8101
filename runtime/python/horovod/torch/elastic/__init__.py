"""Training that goes on after a failed collective.

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0, batch=0)

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, 10):
            ...
            state.commit()

    train(state)

A failed collective raises on every rank; `run` then restores what was committed last, joins the job anew, makes all
ranks' state that of the rank which has committed most, and calls the function again.

In a job started with `hvdrun --elastic-restarts N` (or `--min-np` and so on, as horovodrun has them) a rank that ends by a
failure is started again on its host, at most N times in all, and meets the others there: it runs the script from its
beginning, and takes over their state where `train(state)` begins. So before that the script must do nothing that the
others do not do again: no broadcast, no process set. With `--min-np M` the others go on at once without ranks or hosts that
are lost, as long as M ranks are left; size and rank are then others, and a rank that comes back is taken in at the next
commit.
"""

import functools
import gc
from typing import Any, Callable

from horovod.common.elastic import run_fn
from horovod.torch._named import travelling_names
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState, check
from horovod.torch.mpi_ops import init, shutdown

__all__ = ["ElasticSampler", "TorchState", "check", "run"]


def reset() -> None:
    """Leaves the job and joins it again. HorovodInternalError when not all ranks come in time."""
    # A DistributedDataParallel of the function that failed has hooks on the parameters, and may be part of a cycle.
    gc.collect()
    shutdown()
    init()


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function of a state and other arguments, so that it goes on after a failed collective.

    Raises (when the decorated function is called):
        HorovodInternalError: the ranks could not meet again, or the failure comes again and again with nothing
            committed in between.
    """
    again = run_fn(func, reset)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with travelling_names.keep():
            return again(*args, **kwargs)

    return wrapper
