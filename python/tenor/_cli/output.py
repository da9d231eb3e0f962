"""What commands print: tables that fit the terminal, JSON, progress on stderr."""
import json
import os
import re
import sys
import textwrap
import threading
import time


def colourful(stream):
    """Whether colour is welcome there: a terminal, NO_COLOR (no-color.org) unset, no dumb terminal."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text, code, stream=None):
    """The text in an SGR colour ("1" bold, "2" faint, "31" red, "32" green) where colour is welcome."""
    return f"\x1b[{code}m{text}\x1b[0m" if colourful(stream or sys.stdout) else text


def count(number, word):
    """ "1 thread", "2 threads", "3 properties"."""
    plural = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return f"{number} {word if number == 1 else plural}"


def bytes_text(number):
    """ "512 B", "1.50 KiB", "597 MiB": three digits, and the exact number where the unit hides it."""
    scaled, units = float(number), iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while scaled >= 1024 and unit != "TiB":
        scaled, unit = scaled / 1024, next(units)
    return f"{number} B" if unit == "B" else f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f} {unit} ({number} B)"


def width():
    """Columns to write in: the terminal's, or no limit where output goes elsewhere."""
    if not sys.stdout.isatty():
        return 1 << 30
    import shutil

    return max(shutil.get_terminal_size().columns, 20)


def readable():
    """Columns of text that is to be read, wherever it goes: the terminal's, or 100."""
    return min(width(), 100) if not sys.stdout.isatty() else width()


def wrapped(text, room, indent=0):
    """The text in lines of at most `room` columns, all but the first indented; what has no space to break at stays whole."""
    lines = textwrap.wrap(text, max(room, indent + 20), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def prose(text, room):
    """A docstring's paragraphs, those with lines beyond `room` filled anew. Lines that are indented, as an example is, stay as they are."""
    filled = []
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.splitlines()
        keep = max(map(len, lines), default=0) <= room or any(line.startswith(" ") for line in lines)
        filled.append(paragraph if keep else wrapped(" ".join(lines), room))
    return "\n\n".join(filled)


def table(rows, heads=None, right=(), wrap=False):
    """Rows of strings in aligned columns. `right`: columns aligned right. `wrap`: what the last column has no room for goes on below,
    else it is cut to fit the terminal."""
    rows = [[str(cell) for cell in row] for row in rows]
    every = ([list(heads)] if heads else []) + rows
    if not every:
        return
    sizes = [max(len(row[i]) for row in every) for i in range(len(every[0]))]
    start = sum(sizes[:-1]) + 2 * (len(sizes) - 1)
    room = readable() if wrap else width()
    for number, row in enumerate(every):
        cells = [c.rjust(s) if i in right else c.ljust(s) for i, (c, s) in enumerate(zip(row, sizes))]
        line = "  ".join(cells).rstrip()
        if len(line) > room:
            fits = wrap and room - start >= 24
            line = line[:start] + wrapped(" " * start + row[-1], room, start).lstrip() if fits else line[: room - 1] + "…"
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
    """A line on stderr that says how far a command is and for how long, once it has taken a second and only on a terminal.

        with Progress("check", 1000) as progress:
            ...
            progress.at(i, "softmax")

    A thread of its own paints it, so that long calls need no hook; they run without the interpreter's lock.
    """

    def __init__(self, what, total=None):
        self.what, self.total, self.done, self.note = what, total, 0, ""
        self.start = time.monotonic()
        self.lock, self.over, self.shown = threading.Lock(), threading.Event(), False
        self.painter = threading.Thread(target=self._paint, daemon=True) if sys.stderr.isatty() else None

    def __enter__(self):
        if self.painter:
            self.painter.start()
        return self

    def __exit__(self, *_error):
        self.over.set()
        if self.painter:
            self.painter.join()
        self.clear()

    def at(self, done=0, note=""):
        """What the line says from now on."""
        self.done, self.note = done, note

    def clear(self):
        """Takes the line away, before something else is printed."""
        with self.lock:
            if self.shown:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
                self.shown = False

    def _paint(self):
        wait = 1.0
        while not self.over.wait(wait):
            wait = 0.2
            far = f" {self.done}/{self.total}" if self.total else ""
            line = f"{self.what}{far} {self.note}".rstrip() + f" ({time.monotonic() - self.start:.0f} s)"
            with self.lock:
                if not self.over.is_set():
                    sys.stderr.write("\r\x1b[K" + line[:max(width_of_stderr(), 20)])
                    sys.stderr.flush()
                    self.shown = True


def width_of_stderr():
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns - 1
    except (OSError, ValueError):
        return 79
