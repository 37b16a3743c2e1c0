"""The GPT's settings: those in a checkpoint are checked, and sizes are known without allocating a model."""

import dataclasses
import re
import tracemalloc

import pytest

import gpt.config
import training.options
from families import FAMILIES
from gpt.model import GPT
from tests.gpt.configs import GPTConfig, GPTOptions
from tinygrad_lite.errors import CheckpointError
from training.cli.options import PRESETS, build, find_preset, list_presets, read_preset
from training.model_config import read_model_config
from training.start import family_of

FOLDERS = PRESETS, PRESETS / "extra"  # the core's and the shelf's
SMALL = GPTConfig(vocab_size=11, block_size=7, n_layer=2, n_head=2, n_embd=6, dropout=0.1)


NAMES = {field.name for field in dataclasses.fields(GPTConfig)}  # the core has fewer than the shelf
WRONG = {"vocab_size": [0], "n_layer": [2.0, True], "n_embd": ["6", 10**12, None]}
WRONG |= {"bias": [1], "dropout": ["none"], "norm_eps": [float("nan")], "positions": [["learned"]]}
INVALID = [({name: value}, re.escape(f"{name} cannot be {value!r}")) for name in WRONG for value in WRONG[name]]
INVALID += [
    ({"positions": "nope"}, "positions cannot be 'nope': must be one of learned, sinusoidal, rotary, none"),
    ({"n_head": 4}, "do not fit together: n_embd 6 is not a multiple of n_head 4"),
    ({"norm_eps": 0.0}, r"norm_eps cannot be 0\.0: must be above 0 and below 1"),
    ({"extra": 1}, "expected"),
    ({"norm_weight": False}, "a norm without a gain is norm rmsnorm, not layernorm"),
    ({"n_kv_head": 3}, "n_head 2 is not a multiple of n_kv_head 3: every head of keys and values serves the same"),
    ({"positions": "rotary"}, "positions rotary turns pairs of numbers, but a head has 3, an odd number"),
    ({"n_state": 8}, "n_state is the width of a recurrent state: it needs mixer rnn or lstm"),
    ({"mixer": "lstm", "qk_norm": True}, "mixer lstm has no use for settings of attention: choose qk_norm false"),
    ({"mixer": "rnn", "positions": "rotary"}, "mixer rnn has no use for settings of attention: choose positions none"),
]


INVALID = [(change, reason) for change, reason in INVALID if change.keys() <= NAMES | {"extra"}]

# For each number and switch its default, the smallest and the largest value.
SETTINGS = {
    gpt.config.GPTConfig: """
        block_size 64 1 10000000, n_layer 4 1 1000, n_head 4 1 None, n_embd 128 1 1000000, dropout 0.0 0.0 1.0,
        bias False None None, norm_weight True None None, qk_norm False None None, zero_init False None None,
        tie_weights True None None
    """,
    training.options.TrainOptions: """
        resume False None None, overwrite False None None, seed 1337 0 None, workers 0 0 256, composed False
        None None, max_iters 2000 0 None, gradient_accumulation_steps 1 1 1000000, learning_rate 0.001 0.0 None,
        decay_lr True None None, warmup_iters 100 0 None, beta1 0.9 0.0 1.0, beta2 0.99 0.0 1.0, weight_decay
        0.1 0.0 None, grad_clip 1.0 0.0 None, eval_interval 250 1 None, patience 0 0 None
    """,
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_settings_have_these_defaults_and_limits(kind):
    found = []
    for field in dataclasses.fields(kind):
        if isinstance(field.default, int | float) and "bounds" in field.metadata:
            at_least, above, at_most, below = field.metadata["bounds"].values()
            low, high = above if at_least is None else at_least, below if at_most is None else at_most
            found.append(f"{field.name} {field.default} {low} {high}")
    assert found == " ".join(SETTINGS[kind].split()).split(", ")


@pytest.mark.parametrize(("change", "reason"), INVALID)
def test_invalid_settings_are_refused(change, reason):
    with pytest.raises(CheckpointError, match=reason):
        read_model_config(GPTConfig, {**SMALL.to_json(), **change})


# Fields that old checkpoints do not have.
LATER = {"activation": "gelu_tanh", "norm_eps": 1e-6, "n_inner": 5, "norm": "rmsnorm", "norm_weight": False}
LATER |= {"rope_theta": 500.0, "qk_norm": True, "attention_scale": 0.5, "n_kv_head": 1, "head_dim": 4}
LATER |= {"zero_init": True, "tie_weights": False, "rope_scaling": "8,1,4,64"}
LATER |= {"norm_first": False, "residual": False, "recompute": True}
RECURRENT = {"mixer": "lstm", "n_state": 5, "window": None}
LATER, RECURRENT = ({name: value for name, value in them.items() if name in NAMES} for them in (LATER, RECURRENT))


def test_a_checkpoint_without_later_settings_has_their_defaults():
    old = {name: value for name, value in SMALL.to_json().items() if name not in {*LATER, *RECURRENT}}
    assert read_model_config(GPTConfig, old) == SMALL
    assert read_model_config(GPTConfig, {**old, "dropout": 0}).dropout == 0  # JSON has one kind of number
    for settings in (LATER, RECURRENT):
        changed = dataclasses.replace(SMALL, **settings)
        assert read_model_config(GPTConfig, changed.to_json()) == changed


NEEDED = [field.name for field in dataclasses.fields(GPTConfig) if field.name not in {*LATER, *RECURRENT}]


@pytest.mark.parametrize("missing", NEEDED)
def test_no_other_setting_may_be_missing(missing):
    settings = {name: value for name, value in SMALL.to_json().items() if name != missing}
    with pytest.raises(CheckpointError, match="the model's settings are"):
        read_model_config(GPTConfig, settings)


def test_the_size_of_gpt3_takes_no_memory():
    """That with 175 billion parameters and half its context; test_costs.py counts other published models."""
    config = GPTConfig(50257, 1024, n_layer=96, n_head=96, n_embd=12288, bias=True)
    tracemalloc.start()
    try:
        blueprint = GPT.blueprint(config)
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()
    assert blueprint.num_parameters() == 174_591_676_416
    linear = 96 * 12 * 12288**2 + 50257 * 12288
    assert blueprint.flops_per_token() == 3 * 2 * (linear + 96 * 2 * 12288 * 1024)


@pytest.mark.parametrize("name", list_presets(*FOLDERS))
def test_every_preset_is_valid(name):
    preset = read_preset(find_preset(name, FOLDERS))
    options = build(family_of(preset, FAMILIES).options, (name, {n: v for n, v in preset.items() if n != "family"}))
    options.check()
    assert options.model_config(100).n_embd > 0
    assert list_presets(*FOLDERS)[name]


def test_the_default_preset_is_nanogpts_recipe_for_a_cpu():
    options = build(GPTOptions, ("preset", read_preset(PRESETS / "goethe-char.toml")))
    c = options.config
    assert (c.n_layer, c.n_head, c.n_embd, c.block_size, c.dropout) == (4, 4, 128, 64, 0.0)
    assert (options.batch_size, options.max_iters, options.tokenizer) == (12, 2000, "char")
    assert options == dataclasses.replace(GPTOptions(), eval_iters=options.eval_iters)  # the defaults are this preset
