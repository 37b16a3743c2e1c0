"""The whole GPT against the same GPT in PyTorch: gradients, some training, and the command that compares both."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.compare_torch import Update, main, our_side, torch_side
from benchmarks.our_side import make_model as make_model_of
from benchmarks.shapes import SHAPES
from gpt.config import GPTConfig
from gpt.model import GPT
from gpt.options import GPTOptions
from tinygrad_lite import Tensor
from tinygrad_lite.device import keyed_rng, random_key
from tinygrad_lite.functional.registry import set_composed

torch = pytest.importorskip("torch")
from benchmarks import torch_modern  # noqa: E402 (needs torch)
from benchmarks.torch_gpt import from_ours, our_names  # noqa: E402

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
@pytest.mark.parametrize(
    "kind",
    [
        {"positions": "learned"},
        {"positions": "sinusoidal"},
        {"activation": "gelu_tanh", "n_inner": 80, "norm_eps": 1e-3},
    ],
)
def test_gradients_equal_those_of_torch(dtype, allowed, bias, kind, version):
    # The context is longer than one row block of attention.
    model = make_model(dtype, n_layer=2, n_head=3, n_embd=48, block_size=80, bias=bias, **kind)
    torch_model = from_ours(model)
    ids, targets = batch_of(0, 5, 80)
    loss, torch_loss = (
        model.loss((Tensor(ids), Tensor(targets))),
        torch_model.loss(torch.tensor(ids), torch.tensor(targets)),
    )
    loss.backward()
    torch_loss.backward()
    assert loss.item() == pytest.approx(torch_loss.item(), rel=allowed)
    ours = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    theirs = {name: parameter.grad.numpy() for name, parameter in torch_model.named_parameters()}
    largest = max(np.abs(gradient).max() for gradient in theirs.values())
    for name, parts in our_names(model.config).items():
        packed = np.concatenate([ours[part] for part in parts])
        assert np.abs(packed - theirs[name]).max() <= allowed * largest, name
    assert sum(gradient.size for gradient in ours.values()) == sum(gradient.size for gradient in theirs.values())


def check_training(options: GPTOptions, model: GPT) -> None:
    """Train both from the same weights on the same batches; their losses must stay close."""
    torch_update, _ = torch_side(options, model)  # first, because it copies the weights that our side will change
    update, _ = our_side(options, model)
    ours, theirs = (losses_of(side, options) for side in (update, torch_update))
    assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) <= 1e-3
    assert ours[0] == pytest.approx(math.log(70), abs=0.3)
    assert ours[-1] < 0.8 * ours[0]  # it learned something, so the comparison means something


def losses_of(update: Update, options: GPTOptions) -> list[float]:
    # One side after the other: taking turns by single steps, their idle threads would fight for the cores.
    losses = []
    for step in range(options.max_iters):
        ids, targets = batch_of(step, options.batch_size, options.block_size)
        losses.append(update((Tensor(ids), Tensor(targets)), options.learning_rate_at(step)))
    return losses


def test_200_steps_of_training_match_torch():
    settings = {"n_layer": 2, "n_head": 2, "n_embd": 32, "block_size": 32, "bias": True}
    options = GPTOptions(max_iters=200, warmup_iters=20, batch_size=8, **settings)
    assert (options.beta1, options.beta2, options.grad_clip, options.weight_decay) == (0.9, 0.99, 1.0, 0.1)
    check_training(options, make_model(**settings))


@pytest.mark.slow
def test_200_steps_of_the_default_model_match_torch():
    check_training(GPTOptions(max_iters=200, warmup_iters=20), make_model())


def test_the_command_compares_two_processes(tmp_path, monkeypatch, capfd):
    text = "".join(chr(97 + (i * i) % 23) + " " * (i % 5 == 0) for i in range(3000))
    (tmp_path / "text.txt").write_text(text, encoding="utf-8", newline="\n")
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", str(tmp_path / "cache"))
    small = ["--n_layer", "1", "--n_head", "2", "--n_embd", "8", "--block_size", "16", "--threads", "1"]
    assert main(["--text", str(tmp_path / "text.txt"), "--max_iters", "60", *small]) == 0
    table = capfd.readouterr().out
    losses = re.search(r"validation loss, nats +(\S+) +(\S+) ", table)
    assert losses, table
    ours, theirs = map(float, losses.groups())
    assert 0 < ours < math.log(24)
    assert ours == pytest.approx(theirs, abs=1e-4)
    apart = re.search(r"first 200 steps (\S+), all (\S+)", table)
    assert 0 < float(apart[2]) <= 1e-4  # 0 would mean that one model was compared with itself
    assert f"torch {torch.__version__}" in table


def test_the_default_preset_equals_torch(monkeypatch):
    """Loss and gradients, and the weights after three updates, in float64. PyTorch's Muon would cast to bfloat16."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda self: self)
    shape = SHAPES["goethe-no-dropout"]
    options = replace(shape.options, n_layer=2, n_head=2, n_embd=16, block_size=24, batch_size=3)
    shape = replace(shape, options=options, vocab_size=70, tokens=24)
    model = make_model_of(shape)
    model.to("cpu", np.dtype("float64"))
    for name, parameter in model.named_parameters():
        parameter.data[...] += 0.1 * keyed_rng(1, name).standard_normal(parameter.shape)  # some begin at 0
    torch_model = torch_modern.from_ours(model)
    names = torch_modern.our_names(model)
    theirs = dict(torch_model.named_parameters())
    assert names.keys() == theirs.keys()
    ours = {name: dict(model.named_parameters())[own] for name, (own,) in names.items()}
    optimizers = options.make_optimizer(model), torch_modern.MuonAndAdamW(options, torch_model)
    for batch in shape.batches()[:3]:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss, torch_loss = model.loss(tuple(map(Tensor, batch))), torch_model.loss(*map(torch.tensor, batch))
        loss.backward()
        torch_loss.backward()
        assert loss.item() == pytest.approx(torch_loss.item(), rel=1e-10)
        for name, parameter in theirs.items():
            np.testing.assert_allclose(ours[name].grad.numpy(), parameter.grad.numpy(), atol=1e-10, err_msg=name)
        for optimizer in optimizers:
            optimizer.step()
        for name, parameter in theirs.items():
            np.testing.assert_allclose(ours[name].numpy(), parameter.detach().numpy(), atol=1e-8, err_msg=name)
