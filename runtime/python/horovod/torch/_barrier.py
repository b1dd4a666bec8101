"""barrier and join: waiting for one another."""

import ctypes

from horovod.common import _lib
from horovod.common.process_sets import ProcessSet, global_process_set, number_of
from horovod.torch._handles import execute, execute_without_tensor


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns once every rank has called it. HorovodInternalError if one is gone."""
    execute_without_tensor(_lib.BARRIER, number_of(process_set))


def join(device: int = -1) -> int:
    """This rank has no more data: waits until every rank has called it, and returns the rank that did so last.

    Meanwhile this rank takes part in the others' allreduces with zeros; an average is over all ranks as ever, and Min
    and Product see the zeros. Its barriers pass. Other operations raise HorovodInternalError on the ranks that call
    them. Afterwards everything is as before.

    Args:
        device: accepted for scripts that pass it; not needed.
    """
    return execute(None, _last_rank, _lib.JOIN, _lib.UINT8, (), None)


def _last_rank(done: int) -> int:
    return ctypes.c_int32.from_address(_lib.result(done).data).value
