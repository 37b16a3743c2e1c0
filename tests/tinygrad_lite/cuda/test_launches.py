"""Nobody adds launches unnoticed: those of small models are counted, and may only become fewer."""

from dataclasses import replace

import pytest

from tests.tinygrad_lite.cuda.launches import generated_token, narrow, table, training_step

MOST_IN_A_STEP = {"baby": 77, "baby-dropout": 87, "gpt2": 99, "goethe": 143}  # lower them with every launch saved
# How often a step asks arrays for a shape, an address, a view: the host's work, which no launch shows.
MOST_ASKED = {"baby": 2275, "baby-dropout": 2415, "gpt2": 2944, "goethe": 3163}
MOST_FOR_A_TOKEN = 1  # a graph, which contains five for each of two layers, and three


@pytest.mark.parametrize("name", MOST_IN_A_STEP)
def test_a_training_step_launches_no_more_than_before(name):
    launches, ms = training_step(narrow(name, 2))
    assert sum(launches.counts) <= MOST_IN_A_STEP[name], launches
    assert launches.asked <= MOST_ASKED[name]
    assert min(launches.counts) > 0
    assert ms > 0


@pytest.mark.parametrize("name", ["baby", "gpt2", "goethe"])
def test_a_token_launches_no_more_than_before(name):
    launches, ms = generated_token(narrow(name, 2))
    assert 0 < sum(launches.counts) <= MOST_FOR_A_TOKEN, launches
    assert ms > 0


def test_counts_do_not_depend_on_the_sizes():
    shape = narrow("baby", 2)
    larger = replace(shape.options, n_embd=256, n_head=4, batch_size=7, block_size=96)
    counts = [training_step(one)[0].counts for one in (shape, replace(shape, options=larger, tokens=96))]
    assert counts[0] == counts[1]


def test_the_table_has_a_line_for_each_model():
    lines = table(1).splitlines()
    assert len(lines) == 1 + 4 + 3
    assert all(int(line.split()[-5]) == sum(map(int, line.split()[-4:-1])) for line in lines[1:])
