"""PyTorch's side does the same tasks as ours: the same losses, the same text."""

from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import our_side
from benchmarks.__main__ import main
from benchmarks.shapes import NAMED, SHAPES, Shape
from encoder.bert import Bert
from tinygrad_lite import Tensor
from tinygrad_lite.device import keyed_rng

torch = pytest.importorskip("torch")
from benchmarks import torch_encoder, torch_seq2seq, torch_side  # noqa: E402 (needs torch)

pytestmark = pytest.mark.torch


def changed(name: str, **settings) -> Shape:
    shape = SHAPES[name]
    return replace(shape, options=replace(shape.options, **settings))


@pytest.mark.parametrize(
    "shape",
    [
        SHAPES["small"],
        changed("translation", dropout=0.0),
        SHAPES["goethe-no-dropout"],
        changed("bert-no-dropout", n_layer=2, batch_size=8),
        changed("vit-no-dropout", n_layer=2, batch_size=16),
    ],
    ids=["row 1", "row 5", "row 12", "row 16", "row 17"],
)
def test_both_sides_have_the_same_losses(shape):
    step = torch_side.train(shape)
    theirs = [step(number)["loss"] for number in range(3)]
    with ExitStack() as until_end:
        update, _ = our_side.updates_of(shape, 1, until_end)
        ours = [update(number) for number in range(3)]
    assert ours[0] == pytest.approx(theirs[0], abs=1e-5)
    assert ours == pytest.approx(theirs, abs=1e-3)
    assert ours[2] < ours[0]


def test_the_compiled_side_takes_the_same_steps(monkeypatch):
    """Compiling takes too long for a test, so nothing is compiled here."""
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda function: compiled.append(function) or function)
    step, facts = torch_side.prepare("train", "small", "torch-compiled")
    assert len(compiled) == 1
    assert facts[-1].startswith("compiling small took")
    plain, _ = torch_side.prepare("train", "small", "torch")
    assert [step(number)["loss"] for number in range(2)] == [plain(number)["loss"] for number in range(2)]


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        (changed("translation", dropout=0.0, n_layer=2, n_embd=32), torch_seq2seq),
        (changed("translation", dropout=0.0, n_layer=2, n_embd=32, norm_first=False), torch_seq2seq),
        (changed("bert-no-dropout", n_layer=2, n_embd=32, batch_size=3), torch_encoder),
        (changed("vit-no-dropout", n_layer=2, n_embd=32, batch_size=3), torch_encoder),
    ],
    ids=["translation", "translation, post-norm", "bert", "vit"],
)
def test_gradients_equal_those_of_torch(shape, kind):
    model = our_side.make_model(shape)
    model.to("cpu", np.dtype("float64"))
    for name, parameter in model.named_parameters():  # zero biases and unit gains would hide mistakes
        parameter.data[...] += 0.1 * keyed_rng(1, name).standard_normal(parameter.shape)
    torch_model = kind.from_ours(model)
    arrays = [
        part.astype("float64") if part.dtype.kind == "f" else part for part in shape.arguments(shape.batches()[0])
    ]
    if shape.model is Bert:
        arrays[0][0, 40:] = shape.config.pad  # which made-up batches do not have
    batch = NAMED.get(shape.model, lambda *parts: parts)(*map(Tensor, arrays))
    loss, torch_loss = model.loss(batch), torch_model.loss(*map(torch.tensor, arrays))
    loss.backward()
    torch_loss.backward()
    assert loss.item() == pytest.approx(torch_loss.item(), rel=1e-7)
    ours = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    theirs = {name: parameter.grad.numpy() for name, parameter in torch_model.named_parameters()}
    names = kind.our_names(model if kind is torch_encoder else model.config)
    assert theirs.keys() <= names.keys()
    largest = max(np.abs(gradient).max() for gradient in theirs.values())
    for name in theirs:
        packed = np.concatenate([ours[part] for part in names[name]])
        assert np.abs(packed - theirs[name]).max() <= 1e-6 * largest, name


def test_all_sides_generate_the_same_tokens():
    pytest.importorskip("transformers")
    shape = changed("small", n_layer=2, block_size=24)
    model = our_side.make_model(shape)
    model.eval()
    ours = [3, *our_side.greedy(model, 3, 23)]
    prompt = torch.tensor([[3]])
    uncached = torch_side.torch_model_of(shape).eval().generate(prompt, 23)
    cached = torch_side.hugging_face(model).generate(prompt, **torch_side.greedily(23))
    assert uncached[0].tolist() == ours
    assert cached[0].tolist() == ours


def test_the_memory_row_needs_no_model_of_ours(monkeypatch):
    monkeypatch.setattr(torch_side, "make_model", None)
    for name in ("small", "goethe"):
        assert torch_side.train_alone(changed(name, n_layer=1))(0)["loss"] > 0


def test_the_command_measures_real_sides(capfd):
    assert main("--rows 1 --quick --turns 1 --threads 1 --workers 1".split()) == 0
    said = capfd.readouterr().out
    assert "- This project: malloc " in said
    assert "small in 1 process\n- torch: threads: 1; the system's malloc\n" in said
    assert said.count(" ms | **") == 2  # two columns of PyTorch with their ratios
    assert "| ≥ 1.15 | ≥ 1.5 |" in said
