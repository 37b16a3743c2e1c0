"""Nobody adds launches unnoticed: those of small models are counted, and may only become fewer."""

import pytest

from tests.extra.cuda.launches import generated_token, narrow, training_step

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
