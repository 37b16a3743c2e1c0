"""The whole GPT against the same GPT in PyTorch: gradients, and a stretch of training."""

import math

import numpy as np
import pytest

from gpt.config import GPTConfig
from gpt.model import GPT
from tinygrad_lite import Tensor, optim
from tinygrad_lite.device import keyed_rng, random_key
from tinygrad_lite.functional.registry import set_composed

torch = pytest.importorskip("torch")
from benchmarks.torch_gpt import from_ours, our_names  # noqa: E402 (needs torch)

pytestmark = pytest.mark.torch


def make_model(dtype: str = "float32", **settings) -> GPT:
    with random_key(5):
        model = GPT(GPTConfig(vocab_size=70, **settings))
    model.to("cpu", np.dtype(dtype))
    for name, parameter in model.named_parameters():  # zero biases and unit gains would hide mistakes
        if parameter.ndim == 1:
            noise = keyed_rng(1, name).standard_normal(parameter.shape)
            parameter.data[...] += (0.1 * noise).astype(dtype)
    return model


def batch_of(step: int, sequences: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows of a text in which the next token can be learned: it repeats, with some noise."""
    rng = keyed_rng(7, "text", step)
    start = rng.integers(0, 70, (sequences, 1))
    windows = (start + 3 * np.arange(length + 1)) % 70
    noisy = rng.random(windows.shape) < 0.1
    windows = np.where(noisy, rng.integers(0, 70, windows.shape), windows)
    return windows[:, :-1], windows[:, 1:]


@pytest.fixture(params=["fused", "composed"])
def version(request):
    set_composed(request.param == "composed")
    yield request.param
    set_composed(False)


@pytest.mark.parametrize(("dtype", "allowed"), [("float32", 1e-5), ("float64", 1e-9)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_gradients_equal_those_of_torch(dtype, allowed, bias, positions, version):
    # The context is longer than one row block of attention.
    model = make_model(dtype, n_layer=2, n_head=3, n_embd=48, block_size=80, bias=bias, positions=positions)
    twin = from_ours(model)
    ids, targets = batch_of(0, 5, 80)
    loss, twin_loss = model.loss((Tensor(ids), Tensor(targets))), twin.loss(torch.tensor(ids), torch.tensor(targets))
    loss.backward()
    twin_loss.backward()
    assert loss.item() == pytest.approx(twin_loss.item(), rel=allowed)
    ours = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    theirs = {name: parameter.grad.numpy() for name, parameter in twin.named_parameters()}
    largest = max(np.abs(gradient).max() for gradient in theirs.values())
    for name, parts in our_names(model.config).items():
        packed = np.concatenate([ours[part] for part in parts])
        assert np.abs(packed - theirs[name]).max() <= allowed * largest, name
    assert sum(gradient.size for gradient in ours.values()) == sum(gradient.size for gradient in theirs.values())


def train_both(steps: int, sequences: int, **settings) -> tuple[list[float], list[float]]:
    """Losses of both over some steps from the same weights, on the same batches."""
    model = make_model(**settings)
    twin = from_ours(model)
    optimizer = optim.AdamW(optim.decay_groups(model, 0.1), lr=1e-3, betas=(0.9, 0.99))
    twin_optimizer = twin.make_optimizer(1e-3, (0.9, 0.99), 0.1)
    losses: tuple[list[float], list[float]] = ([], [])
    for step in range(steps):
        ids, targets = batch_of(step, sequences, model.config.block_size)
        rate = optim.cosine(step, 1e-3, steps // 10, steps, 1e-4)
        optimizer.lr = rate
        optimizer.zero_grad()
        loss = model.loss((Tensor(ids), Tensor(targets)))
        loss.backward()
        optimizer.clip_grad_norm(1.0)
        optimizer.step()
        losses[0].append(loss.item())
        for group in twin_optimizer.param_groups:
            group["lr"] = rate
        twin_optimizer.zero_grad()
        twin_loss = twin.loss(torch.tensor(ids), torch.tensor(targets))
        twin_loss.backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), 1.0)
        twin_optimizer.step()
        losses[1].append(twin_loss.item())
    return losses


def check_losses(ours: list[float], theirs: list[float]) -> None:
    assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) <= 1e-3
    assert ours[0] == pytest.approx(math.log(70), abs=0.3)
    assert ours[-1] < 0.8 * ours[0]  # it learned something, so the comparison means something


def test_200_steps_of_training_go_as_in_torch():
    check_losses(*train_both(200, 8, n_layer=2, n_head=2, n_embd=32, block_size=32, bias=True))


@pytest.mark.slow
def test_200_steps_of_the_default_model_go_as_in_torch():
    check_losses(*train_both(200, 12))
