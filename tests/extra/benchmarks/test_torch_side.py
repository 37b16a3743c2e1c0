"""PyTorch's side does the same tasks as ours, with the same gradients, losses and text."""

from contextlib import ExitStack, nullcontext
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import our_side
from benchmarks.shapes import NAMED, SHAPES, Shape
from extra.encoders.bert import Bert
from tinygrad_lite import Tensor
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.nn import Module
from tinygrad_lite.random import keyed_rng

torch = pytest.importorskip("torch")
from benchmarks import torch_gpt, torch_seq2seq, torch_side  # noqa: E402 (needs torch)

pytestmark = pytest.mark.torch
torch.set_num_threads(1)  # more of them would wait for the cores that other tests keep busy


def changed(name: str, **settings) -> Shape:
    shape = SHAPES[name]
    return replace(shape, options=shape.options.changed(**settings))


LEARNING = {
    "row 1": (changed("small", n_layer=2, n_head=2, n_embd=32, batch_size=4, bias=True), 200),
    "row 5": (changed("translation", dropout=0.0, n_layer=1), 3),
    "row 12": (changed("goethe-no-dropout", n_layer=2), 3),
    "row 16": (changed("bert-no-dropout", n_layer=2, batch_size=8), 3),
    "row 17": (changed("vit-no-dropout", n_layer=2, batch_size=16), 3),
}


@pytest.mark.parametrize("name", LEARNING)
def test_both_sides_have_the_same_losses(name, monkeypatch):
    """PyTorch's Muon would round to bfloat16, whose 8 bits the first round magnifies."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda self: self)
    shape, steps = LEARNING[name]
    monkeypatch.setitem(SHAPES, name, shape)
    step, _ = torch_side.prepare("train", name, "torch")
    theirs = [step(number)["loss"] for number in range(steps)]
    with ExitStack() as until_end:
        update, _ = our_side.updates_of(*our_side.parts_of(shape, 1), until_end)
        ours = [update(number) for number in range(steps)]
    assert ours[0] == pytest.approx(theirs[0], abs=1e-5)
    assert ours == pytest.approx(theirs, abs=1e-3)
    assert ours[-1] < ours[0]


def with_noise(model: Module, dtype: str) -> Module:
    """The model in another type, and other parameters: zero biases and unit gains would hide mistakes."""
    model.to("cpu", np.dtype(dtype))
    for name, parameter in model.named_parameters():
        parameter.data[...] += (0.1 * keyed_rng(1, name).standard_normal(parameter.shape)).astype(dtype)
    return model


def assert_same_gradients(model, batch, torch_model, arrays, names, allowed: float) -> None:
    """Both losses and all gradients agree; `names` maps each parameter of PyTorch's to the parts of ours."""
    loss, torch_loss = model.loss(batch), torch_model.loss(*map(torch.tensor, arrays))
    loss.backward()
    torch_loss.backward()
    assert loss.item() == pytest.approx(torch_loss.item(), rel=allowed)
    ours = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    theirs = {name: parameter.grad.numpy() for name, parameter in torch_model.named_parameters()}
    assert {part for name in theirs for part in names[name]} == ours.keys()
    largest = max(np.abs(gradient).max() for gradient in theirs.values())
    for name, gradient in theirs.items():
        packed = np.concatenate([ours[part] for part in names[name]])
        assert np.abs(packed - gradient).max() <= allowed * largest, name


# The context is longer than one row block of attention.
OF_GPT = {"n_head": 3, "n_embd": 48, "block_size": 80, "batch_size": 5}
GPTS = [{"positions": "sinusoidal"}, {"activation": "gelu_tanh", "n_inner": 80, "norm_eps": 1e-3}]
GRADIENTS = [("translation", {"dropout": 0.0, "norm_first": norm_first}) for norm_first in (True, False)]
GRADIENTS += [(f"{name}-no-dropout", {"batch_size": 3}) for name in ("goethe", "bert", "vit")]
GRADIENTS += [("small", OF_GPT | kind | {"bias": bias}) for kind in GPTS for bias in (False, True)]


@pytest.mark.parametrize(("dtype", "allowed"), [("float32", 1e-5), ("float64", 1e-9)])
@pytest.mark.parametrize("version", [nullcontext, composed])
@pytest.mark.parametrize(("name", "settings"), GRADIENTS)
def test_gradients_equal_those_of_torch(name, settings, dtype, allowed, version):
    shape = changed(name, **{"n_layer": 2, "n_embd": 32} | settings)
    shape = replace(shape, tokens=80) if name == "small" else shape
    model = with_noise(our_side.make_model(shape), dtype)
    arrays = [x.astype(dtype) if x.dtype.kind == "f" else x for x in shape.arguments(shape.batches()[0])]
    if shape.model is Bert:
        arrays[0][0, 40:] = shape.config.pad  # which made-up batches do not have
    batch = NAMED.get(shape.model, lambda *parts: parts)(*map(Tensor, arrays))
    torch_model = torch_side.torch_model_of(shape, model)
    of_torch = torch_seq2seq.our_names(torch_model) if shape.translates else torch_gpt.our_names(torch_model, model)
    with version():
        assert_same_gradients(model, batch, torch_model, arrays, of_torch, allowed)


def test_all_sides_generate_the_same_tokens(transformers):
    shape = changed("small", n_layer=2, block_size=24)
    model = our_side.make_model(shape).eval()
    ours, prompt = [3, *our_side.greedy(model, [3], 23)[0]], torch.tensor([[3]])
    uncached = torch_side.torch_model_of(shape, model).eval().generate(prompt, 23)
    cached = torch_side.hugging_face(model).generate(prompt, **torch_side.greedily(23))
    assert uncached[0].tolist() == cached[0].tolist() == ours
