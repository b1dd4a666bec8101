"""scripts/prose.py finds comments without a main clause; scripts/CONTRIBUTING.md names only what is there."""

import importlib.util
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("prose", ROOT / "scripts/prose.py")
_prose = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_prose)


@pytest.mark.parametrize("text", [
    "Of a job; there is none.",
    "For the launcher to say what becomes of the ranks.",
    "What an engine tells.",
    "In the order of their names;",
])  # fmt: skip
def test_a_clause_that_leans_on_nothing_is_a_fragment(text):
    assert _prose.is_fragment(text)


@pytest.mark.parametrize("text", [
    "The socket belongs to the session.",
    "For the first call, the address is not known yet.",
    "What a rank prints is kept in its file.",
    "When all have answered, the job starts.",
    "in tenths",
])  # fmt: skip
def test_a_sentence_or_a_label_is_none(text):
    assert not _prose.is_fragment(text)


def test_lines_of_comment_make_one_block(tmp_path):
    source = tmp_path / "a.h"
    source.write_text("#pragma once\n// One\n// block.\nint a;  // not this\n\n// Another.\n")
    assert list(_prose.comment_blocks(source, "//")) == [(2, "One block."), (6, "Another.")]


def test_the_contributing_page_names_files_that_exist():
    text = (ROOT / "scripts/CONTRIBUTING.md").read_text()
    named = set(re.findall(r"\b(?:cli|launcher|runtime|tests|scripts)/[\w./-]*\w", text))
    assert len(named) > 20
    missing = [name for name in named if not (ROOT / name).exists() and not name.endswith("_")]
    assert missing == []
