"""What HorovodRunner keeps of the ranks' output, and what it shows of it."""

import pathlib
import re

import pytest

from sparkdl._kept_output import KeptOutput


def test_a_file_begins_with_the_first_line_and_its_path_is_told_once(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = KeptOutput()
    kept.write("")
    assert list(tmp_path.iterdir()) == [] and capsys.readouterr() == ("", "")
    kept.write("[0]<stdout>:loss 0.5\n")
    kept.write("[1]<stderr>:no warning: hvd: warning: is not at its beginning\n")
    kept.close()
    (path,) = tmp_path.iterdir()
    assert path.read_text() == "[0]<stdout>:loss 0.5\n[1]<stderr>:no warning: hvd: warning: is not at its beginning\n"
    err = capsys.readouterr().err
    assert re.findall(r"is kept in (\S+) on the driver", err) == [str(path)] and "loss" not in err


def test_warnings_of_hvdrun_and_libhvd_are_shown(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = KeptOutput()
    shown = ["hvdrun: warning: one\n", "[3]<stderr>:hvd: warning: two\n", "Tue Dec  1 07:00:00 2026[12]<stderr>:hvd: error: three\n"]
    kept.write(shown[0])
    kept.write(f"[0]<stdout>:hvd: warning: printed by the function\n{shown[1]}hvdrun: rank 0 has begun\n{shown[2]}")  # in one piece
    kept.close()
    err = capsys.readouterr().err
    assert [line for line in err.splitlines(keepends=True) if "kept in" not in line] == shown
    (path,) = tmp_path.iterdir()
    assert len(path.read_text().splitlines()) == 5


def test_a_job_that_prints_without_end_leaves_its_last_lines(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = KeptOutput(most_bytes=100)
    for number in range(100):
        kept.write(f"[0]<stdout>:line {number}\n")
    kept.close()
    (told,) = re.findall(r"is kept in (\S+) on the driver", capsys.readouterr().err)
    lines = [line for name in (f"{told}.1", told) if pathlib.Path(name).exists() for line in pathlib.Path(name).read_text().splitlines()]
    assert lines == [f"[0]<stdout>:line {number}" for number in range(100 - len(lines), 100)] and 5 <= len(lines) <= 12


def test_a_file_that_cannot_be_made_hides_no_warning(capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    kept = KeptOutput()
    with pytest.raises(OSError):  # which the job survives
        kept.write("hvdrun: warning: shown\n")
    assert capsys.readouterr().err == "hvdrun: warning: shown\n"
