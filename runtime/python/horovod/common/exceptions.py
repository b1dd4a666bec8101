"""The exceptions of the package. Wrong arguments are ValueError; everything about the job is HorovodInternalError."""


class HorovodInternalError(RuntimeError):
    """A collective operation failed, or could not start.

    Raised on every rank that takes part: ranks disagree (shape, dtype, operator, root), a rank or link is gone, or the
    job was never joined or is already left. The text names what failed. `status` is the number of the C interface
    (`HVD_MISMATCH`, `HVD_LOST_PEER`, ...), 0 where there is none.
    """

    def __init__(self, message: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class HorovodVersionMismatchError(ImportError):
    """The libhvd that was found speaks another version of the C interface than this package."""


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts came or went; raised by State.commit, for elastic.run to catch. `skip_sync`: no rank is new."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the hosts of the job have changed")
        self.skip_sync = skip_sync


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """Returns the text for a framework of another version than the one that is needed."""
    return f"{name} is {installed_version}, but {version} is needed."
