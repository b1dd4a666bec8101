#!/usr/bin/env python3
"""Finds comments that a stranger cannot read: blocks whose first sentence has no main clause.

Usage: scripts/prose.py [--list] [--root FOLDER] [FOLDER...]
A block is a run of lines that are only comment. It counts as a fragment when its first sentence begins with a word such as
"What", "Of", "For" or "Where" and no main clause follows, as in "Of the job; there is none.". At most ALLOWED of
all blocks may be fragments. --list shows them, FILE:LINE: TEXT. Exit code 1 when there are more.
"""

import argparse
import pathlib
import re
import sys

ALLOWED = 0.02
ROOMS = ("cli", "launcher", "runtime", "scripts")

# A clause that begins with one of these needs another one to lean on, after a comma or a dash.
DEPENDENT = set("""
after as at because before between beside but by during for from if in into like of on once only out over per since
than that through to under unless until upon when whenever where wherever while with within without and or nor so
""".split())
# A sentence may begin with one of these only when a second verb follows: "What it prints is kept."
RELATIVE = set("what whatever which whichever who whoever whom whose whether how those these why".split())
VERB = re.compile(
    r"\b(?:is|are|was|were|has|have|had|does|do|did|can|cannot|could|must|may|might|will|would|should|shall|need|"
    r"[a-z]{2,}(?:s|ed|es|n't)|come|go|get|take|make|give|keep|hold|stand|know|run|end|begin|start|wait|say|see|use|"
    r"send|read|write|become|follow|came|went|got|took|made|gave|kept|held|stood|knew|ran|began|said|saw|sent|left)\b"
)
MARK = {".h": "//", ".cpp": "//", ".c": "//", ".cu": "//", ".py": "#", "": "#"}
SKIPPED = re.compile(r"clang-format|NOLINT|noqa|fmt: |type: |ruff:|coding:|shellcheck|!/|={5}|-{5}")


def comment_blocks(path, mark):
    """(line number, text) of each run of comment lines."""
    start, lines = 0, []
    text = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate([*text, ""], 1):
        stripped = line.strip()
        if stripped.startswith(mark) and not SKIPPED.search(stripped):
            start = start or number
            lines.append(stripped.lstrip("/#!<").strip())
        elif lines:
            if any(lines):
                yield start, " ".join(lines).strip()
            start, lines = 0, []


def first_sentence(text):
    return re.split(r"(?<=[.!?;:])\s", text, maxsplit=1)[0]


def is_fragment(text):
    sentence = first_sentence(text)
    words = re.findall(r"[A-Za-z']+", sentence)
    if not words or len(text) < 8 or not sentence[0].isupper():
        return False
    first = words[0].lower()
    if first in DEPENDENT:
        return not re.search(r"[,:–—]\s|\s-\s|:$", sentence)
    if first in RELATIVE:
        return len(VERB.findall(" ".join(words[1:]).lower())) < 2
    return False


def sources(root, rooms):
    for room in rooms:
        for path in sorted((root / room).rglob("*")):
            if path.is_file() and path.suffix in MARK and "__pycache__" not in path.parts:
                if path.suffix or path.read_bytes()[:2] == b"#!":
                    yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("rooms", nargs="*", default=ROOMS)
    options = parser.parse_args()
    count, found = 0, []
    for path in sources(options.root, options.rooms):
        for line, text in comment_blocks(path, MARK[path.suffix]):
            count += 1
            if is_fragment(text):
                found.append(f"{path.relative_to(options.root)}:{line}: {first_sentence(text)[:100]}")
    share = len(found) / count if count else 0
    if options.list or share > ALLOWED:
        print("\n".join(found))
    print(f"{len(found)} of {count} comment blocks are fragments: {100 * share:.1f} %, at most {100 * ALLOWED:.0f} %")
    return share > ALLOWED


if __name__ == "__main__":
    sys.exit(main())
