"""The whole GPT against the same GPT in PyTorch: gradients, and the weights after updates."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.our_side import make_model as make_model_of
from benchmarks.shapes import SHAPES
from extra.gpt.config import GPTConfig
from gpt.model import GPT
from tinygrad_lite import Tensor
from tinygrad_lite.functional.registry import set_composed
from tinygrad_lite.nn import Module
from tinygrad_lite.random import keyed_rng, random_key

torch = pytest.importorskip("torch")
from benchmarks.torch_gpt import from_ours, our_names  # noqa: E402 (needs torch)
from benchmarks.torch_side import MuonAndAdamW  # noqa: E402

pytestmark = pytest.mark.torch
torch.set_num_threads(1)  # more of them would wait for the cores that other tests keep busy


def with_noise(model: Module, dtype: str, only_vectors: bool = False) -> Module:
    """The model in another type, and other parameters: zero biases and unit gains would hide mistakes."""
    model.to("cpu", np.dtype(dtype))
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 or not only_vectors:
            parameter.data[...] += (0.1 * keyed_rng(1, name).standard_normal(parameter.shape)).astype(dtype)
    return model


def make_model(dtype: str = "float32", **settings) -> GPT:
    with random_key(5):
        return with_noise(GPT(GPTConfig(vocab_size=70, **settings)), dtype, only_vectors=True)


def batch_of(step: int, sequences: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows of a text in which the next token can be learned: it repeats, with some noise."""
    rng = keyed_rng(7, "text", step)
    windows = (rng.integers(0, 70, (sequences, 1)) + 3 * np.arange(length + 1)) % 70
    windows = np.where(rng.random(windows.shape) < 0.1, rng.integers(0, 70, windows.shape), windows)
    return windows[:, :-1], windows[:, 1:]


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


@pytest.fixture(params=["fused", "composed"])
def version(request):
    set_composed(request.param == "composed")
    yield request.param
    set_composed(False)


GPT_KINDS = [
    {"positions": "learned"},
    {"positions": "sinusoidal"},
    {"activation": "gelu_tanh", "n_inner": 80, "norm_eps": 1e-3},
]


@pytest.mark.parametrize(("dtype", "allowed"), [("float32", 1e-5), ("float64", 1e-9)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", GPT_KINDS)
def test_gradients_equal_those_of_torch(dtype, allowed, bias, kind, version):
    # The context is longer than one row block of attention.
    model = make_model(dtype, n_layer=2, n_head=3, n_embd=48, block_size=80, bias=bias, **kind)
    arrays = batch_of(0, 5, 80)
    batch = tuple(map(Tensor, arrays))
    torch_model = from_ours(model)
    assert_same_gradients(model, batch, torch_model, arrays, our_names(torch_model, model), allowed)


def test_the_default_preset_equals_torch(monkeypatch):
    """Loss and gradients, and the weights after three updates, in float64. PyTorch's Muon would cast to bfloat16."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda self: self)
    shape = SHAPES["goethe-no-dropout"]
    options = shape.options.changed(n_layer=2, n_head=2, n_embd=16, block_size=24, batch_size=3)
    shape = replace(shape, options=options, vocab_size=70, tokens=24)
    model = with_noise(make_model_of(shape), "float64")
    torch_model = from_ours(model, packed=False)
    names = our_names(torch_model, model)
    optimizers = options.make_optimizer(model), MuonAndAdamW(options, torch_model)
    ours, theirs = (dict(one.named_parameters()) for one in (model, torch_model))
    for arrays in shape.batches()[:3]:
        for optimizer in optimizers:
            optimizer.zero_grad()
        assert_same_gradients(model, tuple(map(Tensor, arrays)), torch_model, arrays, names, 1e-10)
        for optimizer in optimizers:
            optimizer.step()
        for name, (own,) in names.items():
            np.testing.assert_allclose(ours[own].numpy(), theirs[name].detach().numpy(), atol=1e-8, err_msg=name)
