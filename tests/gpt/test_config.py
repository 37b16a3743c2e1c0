"""The GPT's settings: what a checkpoint says of them is checked, and sizes are known without making a model."""

import dataclasses
from pathlib import Path

import pytest

from gpt.config import GPTConfig, GPTOptions
from gpt.model import GPT
from tinygrad_lite.errors import CheckpointError, OptionError
from tinygrad_lite.options import build, list_presets, read_preset

PRESETS = Path(__file__).parent.parent.parent / "presets"
SMALL = GPTConfig(vocab_size=11, block_size=7, n_layer=2, n_head=2, n_embd=6, dropout=0.1)


def test_json_and_back():
    assert GPTConfig.from_json(SMALL.to_json()) == SMALL
    assert GPTConfig.from_json({**SMALL.to_json(), "dropout": 0}).dropout == 0  # JSON knows one kind of number


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"vocab_size": 0}, "vocab_size cannot be 0"),
        ({"n_layer": -1}, "n_layer cannot be -1"),
        ({"n_layer": 2.0}, r"n_layer cannot be 2\.0"),
        ({"n_layer": True}, "n_layer cannot be True"),
        ({"n_embd": "6"}, "n_embd cannot be '6'"),
        ({"n_embd": 10**12}, "n_embd cannot be 1000000000000"),
        ({"n_embd": None}, "n_embd cannot be None"),
        ({"bias": 1}, "bias cannot be 1"),
        ({"dropout": "none"}, "dropout cannot be 'none'"),
        ({"positions": ["learned"]}, "positions cannot be"),
        ({"positions": "rotary"}, "do not fit together"),
        ({"n_head": 4}, "do not fit together"),
        ({"extra": 1}, "expected"),
    ],
)
def test_settings_that_no_gpt_has(change, reason):
    with pytest.raises(CheckpointError, match=reason):
        GPTConfig.from_json({**SMALL.to_json(), **change})


@pytest.mark.parametrize("missing", [field.name for field in dataclasses.fields(GPTConfig)])
def test_no_setting_may_be_missing(missing):
    settings = SMALL.to_json()
    del settings[missing]
    with pytest.raises(CheckpointError, match="the model's settings are"):
        GPTConfig.from_json(settings)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_the_number_of_parameters_is_that_of_the_model(bias, positions):
    config = dataclasses.replace(SMALL, bias=bias, positions=positions)
    assert config.num_parameters() == GPT(config).num_parameters()


def test_gpt2_small_has_its_124_million_parameters():
    """GPT-2's own number is 124,439,808: 12 layers, width 768, context 1,024, with biases."""
    assert GPTConfig(50257, 1024, 12, 12, 768, bias=True).num_parameters() == 124_439_808


def test_activations_grow_with_what_they_are_made_of():
    assert SMALL.activations(6) == 6 * SMALL.activations(1)
    assert dataclasses.replace(SMALL, n_layer=3).activations(1) > SMALL.activations(1)
    longer = dataclasses.replace(SMALL, block_size=14)
    assert longer.activations(1) > 2 * SMALL.activations(1)  # attention grows with the square


def test_options_make_a_config():
    options = GPTOptions(n_layer=3, n_head=2, n_embd=8, block_size=5, dropout=0.5, bias=True, positions="sinusoidal")
    assert options.model_config(17) == GPTConfig(17, 5, 3, 2, 8, 0.5, True, "sinusoidal")
    with pytest.raises(OptionError, match="--n_embd 8 is no multiple of --n_head 3: every head needs the same width"):
        GPTOptions(n_head=3, n_embd=8).model_config(17)


@pytest.mark.parametrize("name", sorted(list_presets(PRESETS)))
def test_every_preset_is_a_run_that_can_be(name):
    options = build(GPTOptions, (name, read_preset(PRESETS / f"{name}.toml")))
    assert options.model_config(100).num_parameters() > 0
    assert list_presets(PRESETS)[name]


def test_the_default_preset_is_nanogpts_recipe_for_a_cpu():
    options = build(GPTOptions, ("preset", read_preset(PRESETS / "goethe-char.toml")))
    shape = (options.n_layer, options.n_head, options.n_embd, options.block_size, options.batch_size)
    assert shape == (4, 4, 128, 64, 12)
    assert (options.max_iters, options.dropout, options.tokenizer) == (2000, 0.0, "char")
    assert options == dataclasses.replace(GPTOptions(), eval_iters=options.eval_iters)  # the defaults are this preset
