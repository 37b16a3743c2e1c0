"""In a Python that finds this file in PYTHONPATH, the first call of a function of the code under test raises."""

import os
import sys
from pathlib import Path

ROOT = f"{Path(__file__).parents[3]}{os.sep}"


def raise_in_a_function(frame, event, argument):
    """Serves sys.setprofile: the exception arises in the function that is called."""
    file, name = frame.f_code.co_filename, frame.f_code.co_name
    if event == "call" and name != "<module>" and file.startswith(ROOT) and not file.startswith(f"{ROOT}tests{os.sep}"):
        raise RuntimeError("a stub was called")


if __name__ == "sitecustomize":  # and not where pytest looks for doctests
    sys.setprofile(raise_in_a_function)
