"""Where horovod.run and its like look for hvdrun."""

import importlib.metadata
import pathlib
import shutil
import sys

import pytest

from horovod.runner import _job


class File(pathlib.PurePosixPath):
    """A file of an installed package."""

    def locate(self):
        return f"/installed/lib/{self}"


def test_programs_are_found_where_pip_has_put_them(monkeypatch, tmp_path):
    own = tmp_path / "bin/hvdrun"
    own.parent.mkdir()
    own.touch(0o755)
    monkeypatch.setattr(sys, "executable", "/elsewhere/python")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.metadata, "files", lambda name: [File("horovod/__init__.py"), File("../../bin/hvdrun")])
    monkeypatch.setattr(_job.os, "access", lambda path, mode: path == "/bin/hvdrun")  # of the prefix, above lib
    assert _job.find_program("hvdrun") == "/bin/hvdrun"
    monkeypatch.undo()
    monkeypatch.setattr(sys, "executable", "/elsewhere/python")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.metadata, "files", lambda name: None)
    monkeypatch.setattr(_job, "__file__", str(tmp_path / "horovod/runner/_job.py"))
    assert _job.find_program("hvdrun") == str(own)
    with pytest.raises(FileNotFoundError, match="hvdrun-agent is neither beside /elsewhere/python, nor in PATH"):
        _job.find_program("hvdrun-agent")
