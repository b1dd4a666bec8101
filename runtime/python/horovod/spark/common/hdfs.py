"""Hadoop's file system for a store: fsspec's, over pyarrow's libhdfs, with the one method that Horovod's programs call too."""

import shutil
from typing import Any

from fsspec.implementations.arrow import HadoopFileSystem

_PIECE_BYTES = 1 << 20


class HdfsFiles(HadoopFileSystem):
    """fsspec's class, whose upload() also takes a path and an open file, as pyarrow's former client of HDFS did."""

    def upload(self, lpath: Any, rpath: Any, *args: Any, **kwargs: Any) -> None:
        if not hasattr(rpath, "read"):
            super().upload(lpath, rpath, *args, **kwargs)
            return
        with self.open(lpath, "wb") as out:
            shutil.copyfileobj(rpath, out, _PIECE_BYTES)
