"""Freezing and LoRA: formulas, derivatives, which parameters learn, and folding in."""

import numpy as np
import pytest

from gpt.fast.step import FastStep
from gpt.model import GPT
from seq2seq.model import Seq2Seq
from tests.gpt.configs import GPTConfig, Seq2SeqConfig
from tests.places import fill, here
from tinygrad_lite import Tensor
from tinygrad_lite.adapt import LoRA, add_lora, attach, counts, freeze, learned, load_learned, merge, sizes
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.flops import linear_flops
from tinygrad_lite.nn import Linear
from tinygrad_lite.optim import AdamW, decay_groups
from tinygrad_lite.quantize import KINDS, QuantizedLinear, quantize
from tinygrad_lite.random import random_key

pytestmark = pytest.mark.every_device

SMALL = GPTConfig(vocab_size=11, block_size=6, n_layer=2, n_head=2, n_embd=8, bias=True)
CHANGE = np.ones((2, 8)), np.ones((8, 2)), 0.5
DRAWN = np.random.default_rng(2).integers(0, 11, (2, 3, 6))


def batch() -> tuple[Tensor, Tensor]:
    """Ids and targets (3, 6)."""
    return Tensor(DRAWN[0]), Tensor(DRAWN[1])


def adapted(rank: int = 2, lively: bool = True, **settings) -> GPT:
    """A small GPT with adapters, whose B are not 0 unless it has to be new."""
    with random_key(1):
        model = GPT(SMALL)
    freeze(model, ["*"])
    added = add_lora(model, rank, alpha=3.0, **settings)
    for number, part in enumerate(added.values() if lively else ()):
        fill(part.lora_B.weight, 0.1 * np.random.default_rng(number).standard_normal(part.lora_B.weight.shape))
    return model


# --- formulas ---------------------------------------------------------------------------------------------------


def inputs() -> list[Tensor]:
    """x (5, 4), W (3, 4), b (3,), A (2, 4), B (3, 2)."""
    rng = np.random.default_rng(0)
    return [Tensor(rng.standard_normal(shape), requires_grad=True) for shape in ((5, 4), (3, 4), (3,), (2, 4), (3, 2))]


def apply(x, w, b, a_half, b_half, alpha=3.0):
    part = LoRA(Linear(4, 3), rank=2, alpha=alpha)
    vars(part.base).update(weight=w, bias=b)  # tensors in the places of parameters
    vars(part.lora_A).update(weight=a_half)
    vars(part.lora_B).update(weight=b_half)
    return part(x)


def test_forward_is_the_formula_and_backward_its_derivative():
    x, w, b, a_half, b_half = inputs()
    y = x.numpy() @ (w.numpy() + 1.5 * b_half.numpy() @ a_half.numpy()).T + b.numpy()
    np.testing.assert_allclose(apply(*inputs()).numpy(), y, rtol=1e-12)
    assert gradcheck(apply, inputs()) < 1e-7


def test_it_begins_as_the_base_and_only_b_moves_first():
    model = adapted(lively=False)
    with random_key(1):
        base = GPT(SMALL)
    assert (model(batch()[0]).numpy() == base(batch()[0]).numpy()).all()
    model.loss(batch()).backward()
    size = {name: float(abs(parameter.grad).max()) for name, parameter in learned(model).items()}
    assert all((size[name] > 0) == name.endswith("lora_B.weight") for name in size)


def test_dropout_concerns_the_change_only():
    part = LoRA(Linear(4, 3), rank=2, alpha=1.0, dropout=0.5)
    assert list(learned(part)) == ["lora_A.weight", "lora_B.weight"]
    x = Tensor.ones(2, 4)
    with random_key(3):
        assert (part(x).numpy() == part.base(x).numpy()).all()  # B is 0
        fill(part.lora_B.weight, np.ones((3, 2)))
        first, second = part(x).numpy(), part(x).numpy()
    assert (first != second).any()
    part.eval()
    np.testing.assert_array_equal(part(x).numpy(), (part.base(x) + part.lora_B(part.lora_A(x)) * part.scale).numpy())


# --- what learns ------------------------------------------------------------------------------------------------


def test_only_adapters_learn_and_backward_ends_below_the_lowest():
    model = adapted(targets=["blocks.1.*.query"])
    assert list(learned(model)) == ["blocks.1.mixer.query.lora_A.weight", "blocks.1.mixer.query.lora_B.weight"]
    assert counts(model) == (2 * 2 * 8, model.num_parameters())
    assert not model.blocks[0](Tensor.ones(1, 3, 8)).requires_grad
    model.loss(batch()).backward()
    assert {name for name, p in model.named_parameters() if p.grad is not None} == set(learned(model))


def test_all_linear_maps_of_the_blocks_are_adapted_unless_told_otherwise():
    parts = "query key value output up down".split()
    assert {name.split(".")[-1] for name in add_lora(GPT(SMALL), 1, 1.0)} == set(parts)
    assert len(add_lora(GPT(SMALL), 8, 1.0)) == 2 * len(parts)
    assert len(add_lora(GPT(SMALL), 1, 1.0, ["query", "blocks.*.value"])) == 4
    model = Seq2Seq(Seq2SeqConfig(20, 0, 1, 2, n_layer=2, n_embd=8, n_head=2, block_size=6))
    assert len(add_lora(model, 1, 1.0)) == 2 * (6 + 10)


def test_patterns_name_parts_and_all_below_them():
    model = GPT(SMALL)
    assert freeze(model, ["blocks.0"]) == [name for name in model.state_dict() if name.startswith("blocks.0.")]
    frozen = freeze(model, ["*.bias", "blocks.*.mlp", "token_embedding"])
    assert "blocks.1.mlp.up.weight" in frozen
    assert "token_embedding.weight" in frozen
    assert "blocks.1.mixer.query.weight" in learned(model)
    assert freeze(GPT(SMALL), ["*"], among=["final_norm.bias", "gone"]) == ["final_norm.bias"]


MISTAKES = [
    (lambda model: freeze(model, ["nothing"]), "called nothing: there are token_embedding.*query.bias and 30 more$"),
    (lambda model: add_lora(model, 1, 1.0, ["nothing"]), "there are query, key, value, output, up, down and 1 more$"),
    (lambda model: add_lora(model, 9, 1.0), "rank 9 is above 8, the smaller side of blocks.0.mixer.query"),
    (lambda model: add_lora(model, 1, 1.0, ["lm_head"]), "lm_head shares its matrix with another part"),
    (lambda model: (add_lora(model, 1, 1.0), add_lora(model, 1, 1.0)), "already has an adapter: merge it first"),
    (lambda model: add_lora(Linear(2, 2), 1, 1.0), "no blocks whose linear maps could be adapted"),
    (lambda model: attach(model, {"token_embedding": CHANGE}), "token_embedding is not a linear map"),
    (lambda model: attach(model, {"blocks.0.mlp.up": CHANGE}), r"does not fit: mis-shaped: .* the model has .32, 2"),
    (lambda model: load_learned(model, {"x": np.zeros(1)}), "missing: token_embedding.weight, .* unexpected: x"),
]


@pytest.mark.parametrize(("change", "reason"), MISTAKES)
def test_mistakes_are_named(change, reason):
    with pytest.raises(ValueError, match=reason):
        change(GPT(SMALL))


# --- folding in -------------------------------------------------------------------------------------------------


def test_merging_leaves_an_ordinary_model_with_the_same_logits():
    model = adapted().eval()
    assert not FastStep.fits(model)
    y, weight = model(batch()[0]).numpy(), model.blocks[0].mlp.up.base.weight
    count, names = weight.version, list(GPT(SMALL).state_dict())
    assert list(merge(model).state_dict()) == names
    assert (FastStep.fits(model), weight.version) == (here() == "cpu", count + 1)
    np.testing.assert_allclose(model(batch()[0]).numpy(), y, atol=1e-5)


@pytest.mark.cpu_only("quantized weights are for the CPU")
def test_only_matrices_of_floats_can_be_merged_with():
    model = GPT(SMALL)
    model.extra = [LoRA(QuantizedLinear(Linear(4, 3), KINDS["int8"]), rank=1, alpha=1.0)]
    with pytest.raises(TypeError, match=r"extra.0 is a QuantizedLinear: fold the adapter in before quantizing"):
        merge(model)


def test_the_gradient_of_frozen_matrices_is_not_counted():
    model, whole = adapted(rank=1), GPT(SMALL)
    extra = 2 * 2 * (4 * (8 + 8) + 2 * (8 + 32))  # forward: both halves of 6 maps in 2 blocks
    assert linear_flops(model) == linear_flops(whole) + extra
    assert model.flops_per_token() == whole.flops_per_token() + 3 * extra - linear_flops(whole)


@pytest.mark.cpu_only("quantized weights are for the CPU")
def test_over_quantized_weights_the_same_learns_and_the_same_is_counted():
    whole, model = adapted(lively=False), GPT(SMALL)
    freeze(model, ["*"])
    quantize(model, "nf4")
    add_lora(model, 2, alpha=3.0)
    assert list(learned(model)) == list(learned(whole))
    assert sizes(model) == {name: sizes(whole)[name] for name in sizes(model)}
    assert (counts(model), len(sizes(model))) == (counts(whole), len(sizes(whole)))
    assert model.flops_per_token() == whole.flops_per_token()
    optimizer = AdamW(decay_groups(model, 0.1))
    model.loss(batch()).backward()
    optimizer.step()
    assert optimizer.memory.values.numel() == counts(model)[0]
    assert all(part.lora_B.weight.data.any() for _, part in model.named_modules() if isinstance(part, LoRA))


@pytest.mark.cpu_only("NumPy's arrays do not mix with CuPy's")
def test_a_change_of_earlier_stands_beside_its_map():
    model = adapted()
    changes = {}
    for name, part in model.named_modules():
        if isinstance(part, LoRA):
            changes[name] = part.lora_A.weight.data, part.lora_B.weight.data, part.scale
    with random_key(1):
        other = GPT(SMALL)
    attach(other, changes)
    assert (other(batch()[0]).numpy() == model(batch()[0]).numpy()).all()
