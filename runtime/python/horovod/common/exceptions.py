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
