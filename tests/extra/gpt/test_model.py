"""The GPT with settings that only the shelf has: its sizes, and blocks that are computed again."""

from dataclasses import replace

import pytest

from extra.gpt.config import GPTConfig
from tests.gpt.combined_settings import LLAMA, SPEED_RUN
from tests.gpt.small_gpts import gpt_with_large_weights, ids
from tests.lively import assert_recompute_changes_nothing

pytestmark = pytest.mark.every_device


def test_the_estimate_of_activations_includes_the_width_inside_and_what_is_computed_again():
    base = GPTConfig(11, block_size=8, n_layer=2, n_head=2, n_embd=12)
    wider = replace(base, n_inner=4 * 12 + 10)
    assert wider.activations(2) - base.activations(2) == 2 * 8 * 2 * 2 * 10  # tokens, layers, two arrays
    once = replace(base, n_layer=1)
    again = [replace(config, recompute=True).activations(1) for config in (base, once)]
    assert again[0] - again[1] == 8 * 12  # a second block keeps its input
    assert again[1] - once.activations(1) == 8 * 12


@pytest.mark.parametrize("settings", [SPEED_RUN, LLAMA, {"bias": True}], ids=["speed run", "llama", "gpt-2"])
def test_recompute_gives_the_same_gradients_to_the_last_bit(settings):
    def make(recompute):
        return gpt_with_large_weights("float32", dropout=0.2, recompute=recompute, **settings).train()

    assert_recompute_changes_nothing(make, [(ids(3, 8), ids(3, 8)) for _ in range(2)])
