"""Helpers of the command line's tests."""
import contextlib
import io
import json
import os
import subprocess
import sys

from tenor._cli import main


class Ran:
    """What a command came to: status, out, err."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    @property
    def json(self):
        return json.loads(self.out)

    def refused(self, *words, status=2):
        """One line on stderr that holds those words, nothing on stdout."""
        assert self.status == status and self.out == "", (self.status, self.out, self.err)
        assert self.err.count("\n") == 1 and "Traceback" not in self.err and "internal error" not in self.err, self.err
        for word in words:
            assert word in self.err, (word, self.err)


def run(*words):
    """The command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(w) for w in words])
    return Ran(status, out.getvalue(), err.getvalue())


def spawn(*words, **options):
    """The command as a process of its own."""
    environment = {**os.environ, **options.pop("env", {})}
    done = subprocess.run([sys.executable, "-m", "tenor", *map(str, words)], capture_output=True, text=True, timeout=120, env=environment, **options)
    return Ran(done.returncode, done.stdout, done.stderr)
