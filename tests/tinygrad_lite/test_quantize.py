"""Quantized weights: the error stays below its bound, and linear maps compute with what is left of the weights."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays, from_dtype

from gpt.model import GPT
from seq2seq.model import Seq2Seq
from tests.gpt.configs import GPTConfig, Seq2SeqConfig
from tinygrad_lite import Tensor, no_grad
from tinygrad_lite import functional as F
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.errors import OptionError
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.nn import Embedding, Linear
from tinygrad_lite.quantize import (
    KINDS,
    LEVELS,
    Kind,
    Quantized,
    QuantizedLinear,
    quantize,
    quantized_linear,
    rounded_composed,
    weight_bytes,
)
from tinygrad_lite.random import random_key

# Dettmers et al. 2023, appendix E.
PUBLISHED = """
    -1.0 -0.6961928009986877 -0.5250730514526367 -0.39491748809814453 -0.28444138169288635 -0.18477343022823334
    -0.09105003625154495 0.0 0.07958029955625534 0.16093020141124725 0.24611230194568634 0.33791524171829224
    0.44070982933044434 0.5626170039176941 0.7229568362236023 1.0
"""
HALF_GAP = np.diff(LEVELS[4]).max() / 2
LARGEST = {"float16": 2.0**15, "float32": 2.0**100, "float64": 2.0**1000}


@st.composite
def matrices(draw):
    """Matrices of any type and shape, empty ones too, with zeros, repeated numbers, and numbers of all sizes."""
    kind = draw(st.sampled_from([*LARGEST]))
    numbers = from_dtype(np.dtype(kind), min_value=-LARGEST[kind], max_value=LARGEST[kind])
    shape = (draw(st.integers(0, 6)), draw(st.integers(0, 40)))
    return draw(arrays(kind, shape, elements=numbers))


def blocks_of(w: np.ndarray, block: int | None) -> np.ndarray:
    """The numbers of each block, the last filled up with zeros."""
    block = block or max(w.shape[1], 1)
    return np.pad(w.ravel(), (0, -w.size % block)).reshape(-1, block).astype(np.float64)


def errors(w: np.ndarray, kind: Kind) -> tuple[np.ndarray, np.ndarray, Quantized]:
    """The largest error of each block and its absmax, in float64."""
    packed = Quantized(w, kind)
    assert packed.numpy().shape == w.shape
    blocks, read = blocks_of(w, kind.block), blocks_of(packed.numpy(), kind.block)
    return abs(blocks - read).max(axis=1), abs(blocks).max(axis=1), packed


def spacing(absmax: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Rounding in floats: a unit in the last place of absmax, and what the step of subnormal numbers may lose."""
    return np.spacing(absmax.astype(dtype)).astype(np.float64) + 127 * float(np.finfo(dtype).smallest_subnormal)


# --- errors -----------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(matrices(), st.sampled_from([None, 1, 3, 8, 64]))
def test_int8_errs_by_at_most_a_254th_of_the_largest_number(w, block):
    error, absmax, packed = errors(w, Kind(8, block))
    assert (error <= absmax / 254 + spacing(absmax, packed.dtype)).all()


@settings(max_examples=50)
@given(matrices(), st.sampled_from([4, 12, 64]), st.booleans())
def test_nf4_errs_by_at_most_half_the_largest_gap(w, block, double):
    """Double quantization adds the error of the scale, which has the bound of int8."""
    error, absmax, packed = errors(w, Kind(4, block, double))
    lost = np.zeros(len(absmax))
    if double and len(absmax):
        centred = absmax - absmax.mean()
        lost = abs(absmax - packed._read_scales())
        largest = np.repeat(blocks_of(abs(centred)[None], 256).max(axis=1), 256)[: len(lost)]
        rounding = 4 * spacing(absmax.max(keepdims=True), packed.dtype)
        assert (lost <= largest / 254 + rounding).all()
    assert (error <= HALF_GAP * absmax + lost + 2 * spacing(absmax + lost, packed.dtype)).all()


@settings(max_examples=30)
@given(st.integers(0), st.integers(1, 5), st.integers(1, 300), st.sampled_from([*KINDS.values(), Kind(8, 10, True)]))
def test_the_packed_matrix_is_what_the_definition_leaves(seed, rows, width, kind):
    w = np.random.default_rng(seed).standard_normal((rows, width)) * np.linspace(1, 0.01, rows)[:, None]
    np.testing.assert_allclose(Quantized(w, kind).numpy(), rounded_composed(w, kind), rtol=0, atol=1e-14)


def test_the_levels_are_the_published_ones():
    np.testing.assert_allclose(LEVELS[4], [float(word) for word in PUBLISHED.split()], rtol=0, atol=1e-6)
    assert (LEVELS[4] == 0).sum() == 1


@pytest.mark.parametrize(
    ("kind", "bits"),
    [("int8", 8 + 32 / 576), ("int8-block", 8.5), ("nf4-single", 4.5), ("nf4", 4 + 8 / 64 + 32 / (64 * 256))],
)
def test_a_weight_takes_the_bits_that_were_promised(kind, bits):
    w = np.zeros((512, 576), np.float32)
    mean = 4 * (kind == "nf4")
    assert 8 * (Quantized(w, KINDS[kind]).nbytes - mean) / w.size == pytest.approx(bits, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_stay_zeros(kind):
    w = np.ones((3, 64), np.float32)
    w[1], w[2, ::2] = 0, 0
    assert (Quantized(w, KINDS[kind]).numpy()[w == 0] == 0).all()


BROKEN = [np.append(np.ones((1, 139)), bad).reshape(2, 70) for bad in (math.nan, math.inf, -math.inf)]
REFUSED = [(w, "needs a matrix of floats") for w in (np.ones(3), np.ones((1, 2, 3)), np.ones((2, 2), np.int64))]
REFUSED += [(w.astype(np.float32), "NaN, infinity") for w in BROKEN]


@pytest.mark.parametrize(("w", "reason"), REFUSED)
def test_only_matrices_of_finite_floats_are_quantized(w, reason):
    with pytest.raises(ValueError, match=reason):
        Quantized(w, KINDS["nf4"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_matrix_without_values_becomes_another(kind):
    blank = QuantizedLinear(Linear.blueprint(300, 70), KINDS[kind])
    real = QuantizedLinear(Linear(300, 70), KINDS[kind])
    shapes = [[(t.shape, t.dtype, t.data.nbytes) for t in linear.buffers()] for linear in (blank, real)]
    assert shapes[0] == shapes[1]
    assert not any(stride for tensor in blank.weight.buffers() for stride in tensor.data.strides)
    assert blank.weight.nbytes == real.weight.nbytes


@pytest.mark.parametrize("kind", KINDS)
def test_a_broadcast_matrix_is_quantized_like_its_copy(kind):
    w = np.broadcast_to(np.float32(0.5), (3, 70))
    assert Quantized(w, KINDS[kind]).numpy().tolist() == Quantized(w.copy(), KINDS[kind]).numpy().tolist()


@pytest.mark.parametrize("arguments", [(5,), (8, 0), (4, None), (4, 6)])
def test_impossible_kinds_are_refused(arguments):
    with pytest.raises(ValueError, match="block"):
        Kind(*arguments)


# --- linear maps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS.values(), Kind(8, 10), Kind(4, 12, double=True)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_value_and_gradient_are_those_of_the_remaining_weights(kind, bias, monkeypatch):
    """A few rows at a time, which end within blocks."""
    monkeypatch.setattr("tinygrad_lite.quantize.AT_ONCE", 30)
    rng = np.random.default_rng(1)
    weight = Quantized(rng.standard_normal((70, 7)), kind)
    shift = Tensor(rng.standard_normal(70)) if bias else None
    assert len(list(weight.row_blocks())) > 1
    for shape in ((2, 3, 7), (7,), (0, 7)):
        x = Tensor(rng.standard_normal(shape), requires_grad=True)
        expected = F.linear(x, Tensor(weight.numpy()), shift)
        y = quantized_linear(x, weight, shift)
        np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=0, atol=1e-13)
        with composed():
            np.testing.assert_allclose(quantized_linear(x, weight, shift).numpy(), expected.numpy(), atol=1e-13)
        gradcheck(lambda x: quantized_linear(x, weight, shift), [x])


def test_mixed_types_give_float64_and_x_its_own_type():
    x = Tensor(np.ones((2, 4), np.float32), requires_grad=True)
    y = quantized_linear(x, Quantized(np.ones((3, 4)), KINDS["int8"]))
    x.mark_written()  # the derivative does not need it
    y.sum().backward()
    assert (y.dtype, x.grad.dtype) == (np.float64, np.float32)
    with pytest.raises(ValueError, match="do not fit"):
        quantized_linear(Tensor(np.ones((2, 3))), Quantized(np.ones((3, 4)), KINDS["int8"]))


def test_no_copy_of_the_weights_in_floats_is_kept_or_made(monkeypatch):
    """While the graph waits for its backward pass, nothing but the result is added; in between, a few rows are."""
    monkeypatch.setattr("tinygrad_lite.quantize.AT_ONCE", 1 << 12)
    weight = Quantized(np.ones((512, 512), np.float32), KINDS["nf4"])
    x = Tensor(np.ones((2, 512), np.float32), requires_grad=True)
    quantized_linear(x, weight)  # makes the table of levels
    tracemalloc.start()
    y = quantized_linear(x, weight)
    kept, forward = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    y.sum().backward()
    backward = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert kept < 10_000
    assert max(forward, backward) < 120_000 < 512 * 512 * 4 / 8


# --- models -----------------------------------------------------------------------------------------------------


def tiny_gpt(**settings):
    with random_key(1):
        model = GPT(GPTConfig(23, **{"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 12} | settings))
    model.eval()
    return model


def tiny_seq2seq(**settings):
    return Seq2Seq(Seq2SeqConfig(23, 0, 1, 2, n_layer=1, n_head=2, n_embd=16, block_size=12, **settings))


def tiny_modern_seq2seq():
    return tiny_seq2seq(activation="swiglu", positions="rotary", qk_norm=True, norm="rmsnorm")


@pytest.mark.parametrize("settings", [{}, {"activation": "swiglu", "bias": True}, {"activation": "relu2"}], ids=str)
@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_a_quantized_gpt_computes_with_the_remaining_weights(kind, settings):
    model, truth, before = tiny_gpt(**settings), tiny_gpt(**settings), weight_bytes(tiny_gpt(**settings))
    saving = quantize(model, kind)
    assert before == 4 * truth.num_parameters()
    state, replaced, size = truth.state_dict(), 0, 0
    for name, part in model.named_modules():
        if isinstance(part, QuantizedLinear):
            state[f"{name}.weight"] = part.weight.numpy()
            replaced += math.prod(part.weight.shape)
            size += part.weight.nbytes
    truth.load_state_dict(state)
    assert (saving.weights, saving.before, saving.after) == (replaced, before, weight_bytes(model))
    assert saving.bits == 8 * size / replaced
    assert replaced == sum(p.numel() for name, p in truth.named_parameters() if "blocks" in name and p.ndim == 2)
    ids = np.arange(10)[None] % 23
    with no_grad():
        np.testing.assert_allclose(model(Tensor(ids)).numpy(), truth(Tensor(ids)).numpy(), atol=2e-6)
    log_probs, state = model.start(ids[:, :4])
    for token in ids[0, 4:]:
        log_probs, state = model.step(np.array([token]), state)
    np.testing.assert_allclose(log_probs, truth.start(ids)[0], atol=2e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_of_a_quantized_model_is_whole(kind):
    one, other = (tiny_gpt(bias=True) for _ in range(2))
    for parameter in one.parameters():
        parameter.data += 0.1 * np.random.default_rng(5).standard_normal(parameter.shape)
    quantize(one, kind)
    quantize(other, kind)
    ids = Tensor(np.arange(10)[None] % 23)
    assert (one(ids).numpy() != other(ids).numpy()).any()
    other.load_state_dict({name: array.copy() for name, array in one.state_dict().items()})
    assert one(ids).tolist() == other(ids).tolist()
    assert len(one.state_dict()) == len(one.parameters()) + len(one.buffers())


OTHERS = [(tiny_seq2seq, 2, 16), (tiny_modern_seq2seq, 2, 18)]


@pytest.mark.parametrize(("make", "texts", "count"), OTHERS)
def test_the_blocks_of_other_models_are_quantized_too(make, texts, count):
    with random_key(1):
        model = make()
    model.eval()
    ids = [Tensor(np.arange(4, 10)[None])] * texts
    with no_grad():
        before = model(*ids).numpy()
        quantize(model, "int8-block")
        change = abs(model(*ids).numpy() - before).max() / abs(before).max()
    assert 0 < change < 0.02
    assert sum(isinstance(part, QuantizedLinear) for _, part in model.named_modules()) == count


def test_patterns_choose_what_is_quantized():
    model = tiny_gpt()
    quantize(model, "nf4", ["blocks.0.mlp.*", "*.query"])
    found = [name for name, part in model.named_modules() if isinstance(part, QuantizedLinear)]
    assert found == ["blocks.0.mixer.query", "blocks.0.mlp.up", "blocks.0.mlp.down", "blocks.1.mixer.query"]
    with pytest.raises(OptionError, match=r"no block of this GPT has a linear map called \*\.gate"):
        quantize(tiny_gpt(), "nf4", ["*.gate"])


def test_what_cannot_be_quantized_is_refused():
    with pytest.raises(OptionError, match="cannot be quantized as 'int4', only as int8, "):
        quantize(tiny_gpt(), "int4")
    with pytest.raises(OptionError, match="nothing to quantize: no block of this Embedding"):
        quantize(Embedding(3, 2), "nf4")
    for bad in (math.nan, np.finfo(np.float32).max):
        model = tiny_gpt()
        model.blocks[1].mlp.up.weight.data[3, 2] = bad
        with pytest.raises(OptionError, match=r"blocks\.1\.mlp\.up cannot be quantized: .* numbers too large"):
            quantize(model, "int8")
