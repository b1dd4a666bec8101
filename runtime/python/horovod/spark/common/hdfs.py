"""Hadoop's file system for a store: fsspec's, over pyarrow's libhdfs, with the one method that Horovod's programs call too."""

import errno
import os
import shutil
import subprocess
from typing import Any, Optional

from fsspec.implementations.arrow import HadoopFileSystem

_PIECE_BYTES = 1 << 20
# Hadoop's script starts Java.
_CLASSPATH_S = 60.0


def find_classes() -> None:
    """Has libhdfs find Hadoop's classes: it reads CLASSPATH, which few set. Where that names none they are asked of Hadoop."""
    before = os.environ.get("CLASSPATH", "")
    home = os.environ.get("HADOOP_HOME")
    program = os.path.join(home, "bin", "hadoop") if home else shutil.which("hadoop")
    if "hadoop" in before or program is None:
        return
    try:
        told = subprocess.run([program, "classpath", "--glob"], capture_output=True, text=True, timeout=_CLASSPATH_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return  # what libhdfs says will tell
    os.environ["CLASSPATH"] = ":".join(filter(None, [before, told.stdout.strip()]))


class HdfsFiles(HadoopFileSystem):
    """fsspec's class, whose upload() also takes a path and an open file, as pyarrow's former client of HDFS did."""

    def rm(self, path: str, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        """As other file systems: FileNotFoundError where there is nothing. libhdfs has one error for every delete that failed."""
        try:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
        except OSError as error:
            if self.exists(path):
                raise
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error

    def upload(self, lpath: Any, rpath: Any, *args: Any, **kwargs: Any) -> None:
        if not hasattr(rpath, "read"):
            super().upload(lpath, rpath, *args, **kwargs)
            return
        with self.open(lpath, "wb") as out:
            shutil.copyfileobj(rpath, out, _PIECE_BYTES)
