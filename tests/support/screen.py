"""A terminal for tests: a pseudo-terminal of a size, and what a person would see on it.

It knows what hvdrun and plain programs write: characters (each one column), \\r, \\n, CSI A, J, K and m; lines wrap and
scroll. Any other escape sequence is an error.
"""

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

from patience import PATIENCE

SEQUENCE = re.compile(r"\x1b\[([\d;]*)([A-Za-z])")


class Screen:
    def __init__(self, columns, lines):
        self.columns, self.lines = columns, lines
        self.scrolled = []  # rows that have left at the top
        self.rows = [""]
        self.row = self.column = 0
        self.rest = ""

    def feed(self, text):
        text, self.rest = self.rest + text, ""
        at = 0
        while at < len(text):
            c = text[at]
            if c == "\x1b":
                found = SEQUENCE.match(text, at)
                if not found:
                    assert len(text) - at < 12, f"unknown sequence {text[at:at + 12]!r}"
                    self.rest = text[at:]
                    return
                self.obey(found.group(2), int(found.group(1) or 1) if found.group(2) == "A" else found.group(1))
                at = found.end()
                continue
            at += 1
            if c == "\r":
                self.column = 0
            elif c == "\n":
                self.down()
            else:
                assert c >= " ", f"control character {c!r}"
                if self.column == self.columns:
                    self.column = 0
                    self.down()
                row = self.rows[self.row].ljust(self.column)
                self.rows[self.row] = row[:self.column] + c + row[self.column + 1:]
                self.column += 1

    def down(self):
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append("")
        if len(self.rows) > self.lines:
            self.scrolled.append(self.rows.pop(0))
            self.row -= 1

    def obey(self, command, number):
        if command == "A":
            assert number <= self.row, "the cursor leaves the screen"
            self.row -= number
        elif command in "JK":
            self.rows[self.row] = self.rows[self.row][:self.column]
            del self.rows[self.row + 1 if command == "J" else len(self.rows):]
        else:
            assert command == "m", f"CSI {command}"

    def all(self):
        """Every row that a person can scroll back to, without blanks at the ends; but for hvdrun's word on how long its start
        took, which it has where that was long."""
        rows = [row.rstrip() for row in self.scrolled + self.rows]
        return [row for row in rows if not re.match(r"hvdrun: \d+ hosts? connected in ", row)]


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, command, columns=80, lines=24, env=None, **options):
        self.screen = Screen(columns, lines)
        self.raw = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.end, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        env = {**(os.environ if env is None else env), "TERM": "xterm"}
        options = {"stdin": slave, "stdout": slave, "stderr": slave, **options}
        self.process = subprocess.Popen(list(map(str, command)), env=env, start_new_session=True, **options)
        os.close(slave)

    def read(self):
        """Some more of what it writes; False at the end."""
        if not select.select([self.end], [], [], 1)[0]:
            return True
        try:
            data = os.read(self.end, 65536)
        except OSError:  # the last one has closed the other end
            data = b""
        text = self.decoder.decode(data)
        self.raw += text
        self.screen.feed(text)
        return bool(data)

    def wait_for(self, condition):
        """Reads until condition(screen) holds."""
        deadline = time.monotonic() + PATIENCE
        while not condition(self.screen):
            assert time.monotonic() < deadline and self.read(), "\n".join(self.screen.all())

    def finish(self):
        """Reads to the end; the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.read():
            assert time.monotonic() < deadline, "\n".join(self.screen.all())
        os.close(self.end)
        return self.process.wait(PATIENCE)
