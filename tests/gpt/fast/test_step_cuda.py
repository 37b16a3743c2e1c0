"""The fast step on a GPU: the same log-probabilities as the general step on the CPU, for all settings."""

import dataclasses
import itertools

import numpy as np
import pytest

from gpt.fast.step import FastStep, has_known_parts
from gpt.fast.step_cuda import FastStepCuda
from tests.gpt.combined_settings import COMBINED
from tests.gpt.configs import has
from tests.gpt.fast.test_step import CHOICES, SETTINGS, TOLERANCE, fast_step, make_model, steps, updated
from tinygrad_lite.adapt import add_lora
from tinygrad_lite.cuda import decode, graph
from tinygrad_lite.device import get_device, on_host
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.optim import AdamW
from tinygrad_lite.precision import bfloat16, precision

GPT2 = {"bias": True, "activation": "gelu_tanh"}
FITTING = {"gpt-2": GPT2} | COMBINED
FITTING = {name: settings for name, settings in FITTING.items() if has_known_parts(make_model(**settings))}
rng = np.random.default_rng(2)
PROMPT, TOKENS = rng.integers(0, 23, (3, 4)), rng.integers(0, 23, (3, 10))


COMPARED = [
    *((FITTING[name], "float64") for name in ("gpt-2", "speed run", "qwen") if name in FITTING),
    (GPT2, "float32"),
    *(pytest.param(settings, "float64", marks=pytest.mark.slow) for settings in SETTINGS),
    *(pytest.param(settings, "float32", marks=pytest.mark.slow) for settings in (*FITTING.values(), *CHOICES)),
]


@pytest.mark.parametrize(("settings", "dtype"), COMPARED, ids=str)
def test_the_fast_step_equals_the_general_one(settings, dtype, cuda):
    """With several rows, and beyond the end of the context, where it starts again."""
    model = make_model(**settings)
    is_fast_on_cpu = FastStep.fits(model)
    with composed():
        expected, _ = steps(model, PROMPT, TOKENS)
    found, is_fast = steps(model.to(cuda, dtype), PROMPT, TOKENS)
    assert (is_fast, found.dtype) == (is_fast_on_cpu, np.dtype(dtype))
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


FEW = (("gpt-2", 3), ("gpt-2", 9), ("speed run", 3))
IN_BFLOAT16 = [
    pytest.param(FITTING[name], rows, marks=() if (name, rows) in FEW else pytest.mark.slow, id=f"{name}, {rows}")
    for name, rows in itertools.product(FITTING, (3, 9))  # nine on the tensor cores
]


@pytest.mark.parametrize(("settings", "rows"), IN_BFLOAT16)
def test_in_bfloat16_only_weights_and_caches_are_rounded(settings, rows, cuda):
    """So the step equals that of float32 with these weights, rounded, and a cache that rounds.

    The two add in different orders; where a number is between two of bfloat16, one cache may hold the other of them.
    """
    model = make_model("float32", **settings).to(cuda)
    rounding = FastStepCuda(model)

    def rounded(affine):
        return affine[0].astype(bfloat16()).astype(np.float32), affine[1]

    rounding.head = rounded(rounding.head)
    for layer in rounding.layers:
        for name in ("joint", "output", "up", "down"):
            setattr(layer, name, rounded(getattr(layer, name)))
    with precision("bfloat16"):
        fast = FastStepCuda(model)
    caches, found = model.new_caches(), []
    rounding_caches, expected = model.new_caches(), []
    for cache in rounding_caches:
        cache.make_room(fast.head[0], rows, model.config.n_kv_head or model.config.n_head, model.config.head_width)
    for column in np.resize(TOKENS, (3, rows)):
        found.append(on_host(fast(column, caches)))
        expected.append(on_host(rounding(column, rounding_caches)))
    assert {cache.both.dtype for cache in [*caches, *rounding_caches]} == {bfloat16()}
    kept = [np.stack([on_host(cache.both).astype(np.float32) for cache in each]) for each in (caches, rounding_caches)]
    kept = [array[..., : len(found), :] for array in kept]  # (L, rows, 2, H, T, D)
    assert (kept[0] != kept[1]).mean() < 1e-2
    np.testing.assert_allclose(*kept, rtol=2**-7, atol=1e-3)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


WRITTEN = [
    pytest.param(6, 1, GPT2, id="gpt-2"),
    pytest.param(4, 3, FITTING.get("qwen", FITTING["speed run"]), id="qwen, or what the core has"),
]


@pytest.mark.parametrize(("count", "rows", "settings"), WRITTEN)
def test_replayed_tokens_equal_launched_ones_and_no_weight_changes(count, rows, settings, cuda, monkeypatch):
    """Byte for byte; all but the first in a cache are the launch of one graph, of five kernels a layer and three more.

    The host reads nothing of a token, not even its log-probabilities.
    """
    model, replays, captured = make_model("float32", block_size=count + 1, **settings).to(cuda), [], graph.captured
    before = {name: array.tobytes() for name, array in model.state_dict().items()}
    tokens, found, transfers, device = rng.integers(0, 23, (count, rows)), [], [], get_device(cuda)

    def to_host(array):
        transfers.append(array.shape)
        return device.to_host(array)

    def counted(work):
        replay = captured(work)
        assert replay is not work
        launches = getattr(replay.args[0], "launches", None)  # only an emulated graph knows them
        assert launches is None or len(launches) == 5 * len(model.blocks) + 3
        return lambda: replays.append(replay) or replay()

    for version in (counted, lambda work: work):
        monkeypatch.setattr(graph, "captured", version)
        fast, caches = FastStepCuda(model), model.new_caches()
        fast.device = dataclasses.replace(device, to_host=to_host)
        found.append([on_host(fast(row, caches)).tobytes() for row in tokens])
    assert found[0] == found[1]
    assert (len(replays), len({*replays}), transfers) == (count - 1, 1, [])
    assert {name: array.tobytes() for name, array in model.state_dict().items()} == before


def test_what_cannot_be_captured_is_launched_as_before(cuda):
    x, read = get_device(cuda).xp.ones(2), []

    def work():
        read.append(float(x[0]))

    assert graph.captured(work) is work


def test_a_graph_is_for_the_caches_that_it_was_recorded_with(cuda):
    """Two texts in turn are never replayed; one after the other, each is."""
    model = make_model("float32", **GPT2).to(cuda)
    fast, texts = FastStepCuda(model), [model.new_caches(), model.new_caches()]
    alone, caches = FastStepCuda(model), model.new_caches()
    expected = [on_host(alone(row[:1], caches)).tobytes() for row in TOKENS.T[:6]]
    in_turn = [[on_host(fast(row[:1], caches)).tobytes() for caches in texts] for row in TOKENS.T[:6]]
    assert fast.graph is None
    assert in_turn == [[row, row] for row in expected]
    fast(TOKENS[:1, 6], texts[1])
    assert fast.graph is not None


def test_weights_are_laid_out_again_after_every_change(cuda):
    model, prompt = make_model("float32").to(cuda), np.array([[3]])
    first = fast_step(model)
    assert fast_step(model) is first
    updated(model, AdamW(model.named_parameters(), lr=0.1))
    second = fast_step(model)
    assert second is not first
    with precision("tf32"):
        assert model.start(prompt)[1].fast is second  # the same arrays
    with precision("bfloat16"):
        assert model.start(prompt)[1].fast.dtype == bfloat16()
    assert fast_step(model).dtype == np.float32
    assert type(fast_step(model.to("cpu"))) is FastStep


def test_the_fast_step_is_not_used_where_it_does_not_apply(cuda, monkeypatch):
    model = make_model("float32").to(cuda)
    assert steps(model, PROMPT, TOKENS[:, :1])[1]
    assert FastStepCuda.fits(model)
    assert not FastStep.fits(model)
    assert not steps(model, [[1, 2, 3], [4]], TOKENS[:2, :1])[1]  # rows of different lengths
    with composed():
        assert not steps(model, PROMPT, TOKENS[:, :1])[1]
    assert not FastStepCuda.fits(make_model("float32"))  # on the CPU
    unfit = {"norm_first": False}, {"head_dim": decode.MAX_HEAD_WIDTH + 2}
    assert not any(FastStepCuda.fits(make_model("float32", **settings).to(cuda)) for settings in filter(has, unfit))
    adapted = make_model("float32")
    add_lora(adapted, rank=2, alpha=1.0)
    assert not FastStepCuda.fits(adapted.to(cuda))
    memory = model.num_parameters() * 4
    for share, fits in ((0.9, False), (1.1, True)):
        available = dataclasses.replace(FastStepCuda(model).device, memory=lambda share=share: (0, memory * share))
        monkeypatch.setattr("gpt.fast.step_cuda.get_device", lambda name, available=available: available)
        monkeypatch.setattr("gpt.fast.step_cuda.MEMORY_SHARE", 1.0)
        assert FastStepCuda.fits(model) == fits


def test_more_positions_than_there_is_room_for_are_refused(cuda):
    model = make_model("float32").to(cuda)
    fast, room = FastStepCuda(model), "GPT: {} positions do not fit into {}"
    for caches, read, tokens, reason in (
        (model.new_caches(3), 3, [3], room.format(4, 3)),
        (model.new_caches(100), 12, [3], room.format(13, 12)),
        (model.new_caches(), 1, [3, 4], "2 rows, but the cache has 1"),
    ):
        for token in range(read):
            fast(np.array([token]), caches)
        with pytest.raises(ValueError, match=reason):
            fast(np.array(tokens), caches)


def test_a_token_outside_the_table_gives_nan(cuda):
    fast, model = FastStepCuda(make_model("float32").to(cuda)), make_model("float32")
    found = fast(np.array([3, 23, -1]), model.new_caches())
    assert np.isfinite(found[0]).all()
    assert np.isnan(found[1:]).all()
