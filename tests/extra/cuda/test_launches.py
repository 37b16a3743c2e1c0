"""Nobody adds launches unnoticed: those of small models are counted, and may only become fewer."""

from dataclasses import replace

import pytest

from tests.emulator.cupy_on_cpu import KERNEL
from tests.extra.cuda.launches import counting, generated_token, narrow, table, training_step
from tests.tinygrad_lite.cuda.every_kernel import call_every_kernel
from tinygrad_lite.cuda import launch

MOST_IN_A_STEP = {"baby": 77, "baby-dropout": 87, "gpt2": 99, "goethe": 144}  # lower them with every launch saved
# How often a step asks arrays for a shape, an address, a view: the host's work, which no launch shows.
MOST_ASKED = {"baby": 2281, "baby-dropout": 2421, "gpt2": 2950, "goethe": 3171}
MOST_REPLAYED = {"baby": 7, "baby-dropout": 7, "gpt2": 7, "goethe": 54}  # the passes are one of them
MOST_FOR_A_TOKEN = 14  # five for each of two layers, and three, which are recorded, and their graph


@pytest.mark.parametrize("name", MOST_IN_A_STEP)
def test_a_training_step_launches_no_more_than_before(name):
    launches, replayed, ms = training_step(narrow(name, 2))
    assert sum(launches.counts) <= MOST_IN_A_STEP[name], launches
    assert sum(replayed.counts) <= MOST_REPLAYED[name], replayed
    assert launches.asked <= MOST_ASKED[name]
    assert min(launches.counts) > 0
    assert ms > 0


@pytest.mark.parametrize("name", ["baby", "gpt2", "goethe"])
def test_a_token_launches_no_more_than_before(name):
    launches, replayed, ms = generated_token(narrow(name, 2))
    assert 1 < sum(launches.counts) <= MOST_FOR_A_TOKEN, launches
    assert sum(replayed.counts) == 1
    assert ms > 0


def test_every_kernel_is_called():
    """By the program that runs under compute-sanitizer."""
    kernels = {name for path in launch.SOURCES.glob("*.cu") for name, _ in KERNEL.findall(launch.source(path.stem))}
    with counting() as launches:
        call_every_kernel("cuda")
    assert set(launches.own) == kernels


def test_counts_do_not_depend_on_the_sizes():
    shape = narrow("baby", 2)
    larger = shape.options.changed(n_embd=256, n_head=4, batch_size=7, block_size=96)
    counts = [training_step(one)[0].counts for one in (shape, replace(shape, options=larger, tokens=96))]
    assert counts[0] == counts[1]


def test_the_table_has_a_line_for_each_model():
    lines = table(1).splitlines()
    assert len(lines) == 1 + 4 + 3
    assert all(int(line.split()[-6]) == sum(map(int, line.split()[-5:-2])) for line in lines[1:])
