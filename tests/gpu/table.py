"""The table that scripts/gpu-check ends with, and what is said before it."""

import re
import sys

from commands import cut

MUST = "must hold: "  # what the GPU path was promised to do
MOST_TEXT = 600  # characters of a row
MOST_TOLD = 4  # texts of a check: whoever reads may have the end of all output only


class Table:
    def __init__(self):
        self.rows = []
        self.passed = self.failed = self.skipped = 0

    def add(self, name, outcome, text):
        """`outcome`: True (passed), False (failed), None (skipped)."""
        word = {True: "ok", False: "FAILED", None: "skipped"}[outcome]
        text = text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "..."
        self.rows.append((name, word, text))
        self.passed += outcome is True
        self.failed += outcome is False
        self.skipped += outcome is None
        print(f"gpu-check: {name}: {word}{': ' + text if text else ''}", file=sys.stderr, flush=True)

    def show(self):
        width = max((len(name) for name, _, _ in self.rows), default=0)
        print()
        for name, word, text in self.rows:
            print(f"{name:{width}}  {word:7}  {text}".rstrip())
        print(f"\n{self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)


def say(texts):
    """The ends of `texts`, by who has said them; once what several have said, but for the addresses in it."""
    speakers = {}
    for who, text in texts:
        speakers.setdefault(re.sub(r"0x[0-9a-f]+", "0x...", cut(text)), []).append(who)
    speakers.pop("", None)
    for text, names in list(speakers.items())[:MOST_TOLD]:
        print(f"--- {', '.join(dict.fromkeys(names))}:\n{text}", file=sys.stderr, flush=True)
    if len(speakers) > MOST_TOLD:
        print(f"--- and {len(speakers) - MOST_TOLD} other texts", file=sys.stderr, flush=True)
