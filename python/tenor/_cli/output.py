"""What commands print: tables that fit the terminal, JSON, progress on stderr."""
import json
import os
import re
import sys
import time


def colourful(stream):
    """Whether colour is welcome there: a terminal, NO_COLOR (no-color.org) unset, no dumb terminal."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text, code, stream=None):
    """The text in an SGR colour ("1" bold, "2" faint, "31" red, "32" green) where colour is welcome."""
    return f"\x1b[{code}m{text}\x1b[0m" if colourful(stream or sys.stdout) else text


def width():
    """Columns to write in: the terminal's, or no limit where output goes elsewhere."""
    if not sys.stdout.isatty():
        return 1 << 30
    import shutil

    return max(shutil.get_terminal_size().columns, 20)


def table(rows, heads=None, right=()):
    """Rows of strings in aligned columns; the last column is cut to fit the terminal. `right`: columns aligned right."""
    rows = [[str(cell) for cell in row] for row in rows]
    every = ([list(heads)] if heads else []) + rows
    if not every:
        return
    sizes = [max(len(row[i]) for row in every) for i in range(len(every[0]))]
    room = width()
    for number, row in enumerate(every):
        cells = [c.rjust(s) if i in right else c.ljust(s) for i, (c, s) in enumerate(zip(row, sizes))]
        line = "  ".join(cells).rstrip()
        line = line if len(line) <= room else line[: room - 1] + "…"
        print(paint(line, "1") if heads and number == 0 else line)


def print_json(value):
    """One JSON document, lists of numbers on a line. Numbers that JSON lacks (NaN, infinities) become null."""
    text = json.dumps(finite(value), indent=2)
    print(re.sub(r"\[\s+([^\[\]{}\"]*?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", text))


def finite(value):
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    return [finite(v) for v in value] if isinstance(value, (list, tuple)) else value


class Progress:
    """A line on stderr that says how far a command is, once it has taken a second and only on a terminal.

        with Progress("check", 1000) as progress:
            ...
            progress.at(i, "softmax")
    """

    def __init__(self, what, total=None):
        self.what, self.total = what, total
        self.on = sys.stderr.isatty()
        self.start = self.last = time.monotonic()
        self.shown = False

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.clear()

    def at(self, done=None, note=""):
        now = time.monotonic()
        if not self.on or now - self.start < 1 or now - self.last < 0.1:
            return
        self.last, self.shown = now, True
        far = f" {done}/{self.total}" if self.total else ""
        sys.stderr.write(f"\r\x1b[K{self.what}{far} {note}"[: max(width_of_stderr(), 20) + 4])
        sys.stderr.flush()

    def clear(self):
        """Takes the line away, before something else is printed."""
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self.shown = False


def width_of_stderr():
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns - 1
    except (OSError, ValueError):
        return 79
