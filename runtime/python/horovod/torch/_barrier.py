"""barrier: waiting for one another."""

from horovod.common import _lib
from horovod.common.process_sets import ProcessSet, check_supported, global_process_set
from horovod.torch._handles import start, synchronize


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns once every rank has called it. HorovodInternalError if one is gone."""
    check_supported(process_set)
    synchronize(start((), lambda _: None, _lib.BARRIER, _lib.UINT8, (), None, None, None))
