"""A mutant's fault is in a copy of the process only, and the list of those that nobody could notice is right."""

from tests.mutation.__main__ import LISTED, group_of_files
from tests.mutation.mutants import mutants_of
from tests.mutation.planting import functions_by_file, in_a_child, plant
from tinygrad_lite.optim.schedules import constant


def test_a_fault_is_planted_in_a_copy_of_the_process_only():
    mutants = {mutant.name: mutant for mutant in mutants_of("tinygrad_lite/optim/schedules.py")}
    mutant, functions = mutants["tinygrad_lite/optim/schedules.py constant: step + 1 -> step - 1"], functions_by_file()

    def with_the_fault() -> float:
        plant(mutant, functions)
        return constant(0, 1.0, 1)

    assert (in_a_child(with_the_fault), constant(0, 1.0, 1)) == (-0.5, 0.5)


def test_the_list_names_mutants_that_exist():
    listed = [name for reason in LISTED for name in reason["mutants"]]
    assert len(set(listed)) == len(listed)
    paths = {name.split()[0] for name in listed}
    assert paths <= group_of_files().keys()
    assert not set(listed) - {mutant.name for path in paths for mutant in mutants_of(path)}
