"""What mutants are made of a file, how one is planted, and that the list of those that nobody could notice is right."""

import os
import sys
import time

from tests.mutation.__main__ import LISTED, group_of_files
from tests.mutation.covering import Session, tracer
from tests.mutation.mutants import mutants_of
from tests.mutation.planting import functions_by_file, in_a_child, plant
from tinygrad_lite.optim.schedules import constant

SOURCE = '''
def f(x: int | None, y=-2):
    """A docstring has no mutants, and nor has a message."""
    if x <= 3 and not g(y):
        raise ValueError(f"{x + 1} is too small")
    x *= 0.5
    return x - y
'''
CHANGES = """
-2 -> 2
2 -> 3
x <= 3 and (not g(y)) -> x <= 3 or not g(y)
x <= 3 and (not g(y)) -> not (x <= 3 and (not g(y)))
x <= 3 -> x < 3
3 -> 4
not g(y) -> g(y)
raise ValueError(f'{x + 1} is too small') -> pass
x *= 0.5 -> x /= 0.5
x *= 0.5 -> pass
0.5 -> 1.5
return x - y -> return None
x - y -> x + y
x - y -> x
"""


def test_the_mutants_of_a_file(tmp_path):
    file = tmp_path / "file.py"
    file.write_text(SOURCE, encoding="utf-8")
    mutants = list(mutants_of(str(file)))
    assert [mutant.change for mutant in mutants] == CHANGES.strip().split("\n")
    assert [mutant.on_import for mutant in mutants] == [True] * 2 + [False] * 12
    assert len({mutant.code() for mutant in mutants}) == len(mutants)


def test_a_fault_is_planted_in_a_copy_of_the_process_only():
    mutants = {mutant.name: mutant for mutant in mutants_of("tinygrad_lite/optim/schedules.py")}
    mutant, functions = mutants["tinygrad_lite/optim/schedules.py constant: step + 1 -> step - 1"], functions_by_file()

    def with_the_fault() -> float:
        plant(mutant, functions)
        return constant(0, 1.0, 1)

    assert (in_a_child(with_the_fault), constant(0, 1.0, 1)) == (-0.5, 0.5)


def test_a_child_that_hangs_or_ends_says_nothing():
    assert in_a_child(lambda: time.sleep(60), 0.1) is None
    assert in_a_child(lambda: os._exit(1)) is None


def test_without_a_test_nothing_fails():
    assert Session(print).first_failure({}) == ""  # so that a mutant in a line that no test runs has survived


def test_the_lines_that_run_are_noted():
    found, before = {constant.__code__.co_filename: set()}, sys.gettrace()
    sys.settrace(tracer(found))
    constant(0, 1.0, 1)
    sys.settrace(before)
    first = constant.__code__.co_firstlineno
    assert found == {constant.__code__.co_filename: {first, first + 2}}


def test_the_list_names_mutants_that_exist():
    listed = [name for reason in LISTED for name in reason["mutants"]]
    assert len(set(listed)) == len(listed)
    paths = {name.split()[0] for name in listed}
    assert paths <= group_of_files().keys()
    assert not set(listed) - {mutant.name for path in paths for mutant in mutants_of(path)}
