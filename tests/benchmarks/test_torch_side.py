"""PyTorch's side does the same tasks as ours: the same losses, the same text."""

from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import our_side
from benchmarks.__main__ import main
from benchmarks.shapes import SHAPES, Shape
from tinygrad_lite import Tensor
from tinygrad_lite.cli.errors import UserError

torch = pytest.importorskip("torch")
from benchmarks import torch_side  # noqa: E402 (needs torch)
from benchmarks.torch_seq2seq import TorchSeq2Seq, from_ours, our_names  # noqa: E402

pytestmark = pytest.mark.torch


def changed(name: str, **settings) -> Shape:
    shape = SHAPES[name]
    return replace(shape, options=replace(shape.options, **settings))


@pytest.mark.parametrize(
    "shape",
    [SHAPES["small"], changed("translation", dropout=0.0), SHAPES["goethe-no-dropout"]],
    ids=["row 1", "row 5", "row 12"],
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


def test_a_failed_compilation_is_one_sentence(monkeypatch):
    def fail(*batch):
        raise RuntimeError("Python.h is missing\nand more")

    monkeypatch.setattr(torch, "compile", lambda function: fail)
    with pytest.raises(UserError, match=r"leave out --compile: RuntimeError: Python.h is missing$"):
        torch_side.prepare("train", "small", "torch-compiled")


@pytest.mark.parametrize("norm_first", [True, False])
def test_gradients_of_the_translation_model_are_those_of_torch(norm_first):
    shape = changed("translation", dropout=0.0, n_layer=2, n_embd=32, norm_first=norm_first)
    model = our_side.make_model(shape)
    model.to("cpu", np.dtype("float64"))
    torch_model = from_ours(model)
    batch = shape.batches()[0]
    loss, torch_loss = model.loss(tuple(map(Tensor, batch))), torch_model.loss(*map(torch.tensor, batch))
    loss.backward()
    torch_loss.backward()
    assert loss.item() == pytest.approx(torch_loss.item(), rel=1e-7)
    ours = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    theirs = {name: parameter.grad.numpy() for name, parameter in torch_model.named_parameters()}
    names = our_names(model.config)
    assert names.keys() == theirs.keys()
    largest = max(np.abs(gradient).max() for gradient in theirs.values())
    for name, parts in names.items():
        packed = np.concatenate([ours[part] for part in parts])
        assert np.abs(packed - theirs[name]).max() <= 1e-6 * largest, name


@pytest.mark.parametrize("setting", [{"positions": "learned"}])
def test_the_torch_translation_model_refuses_unsupported_settings(setting):
    with pytest.raises(ValueError, match="the PyTorch model supports only"):
        TorchSeq2Seq(changed("translation", **setting).config)


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
