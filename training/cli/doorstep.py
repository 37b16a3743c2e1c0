"""What a script checks before it imports anything else, so that a newcomer reads a sentence instead of a traceback.

This file must be valid for old versions of Python too.
"""

import os
import sys
from importlib.util import find_spec
from signal import SIGINT, default_int_handler, getsignal, signal

NEEDED = ("numpy", "safetensors", "threadpoolctl", "tqdm", "tinygrad_lite")


def check_python(name):
    """Exit unless this Python, and what is installed in it, can run the program of this name."""
    if sys.version_info < (3, 11):  # noqa: UP036
        sys.exit(f"{name} needs Python 3.11 or newer; this is Python {sys.version.split()[0]}: try python3.12")
    missing = [package for package in NEEDED if not find_spec(package)]
    if missing:
        sys.exit(f"{name}: {missing[0]} is not installed: run pip install -e . in the root of the project")


def enter(name):
    """The same, and until `run_command` takes over, Ctrl-C ends the program at once."""
    check_python(name)
    if getsignal(SIGINT) is default_int_handler:  # where Ctrl-C is ignored, it stays ignored
        signal(SIGINT, lambda *_: os.write(2, f"\n{name}: stopped\n".encode()) and os._exit(130))


def moved(old, new):
    """End a command that has moved, with a sentence that says where to; an import only finds nothing here.

    What its name begins with is `old`; `new` is what then follows `python`.
    """
    words = sys.orig_argv[1:]
    if "-m" in words[:-1] and (name := words[words.index("-m") + 1]).startswith(old):
        sys.exit(f"{name} has moved: python {name.replace(old, new, 1)}")
