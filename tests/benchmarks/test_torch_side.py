"""PyTorch's side does the same tasks as ours: the same losses, the same text."""

from contextlib import ExitStack
from dataclasses import replace

import pytest

from benchmarks import our_side
from benchmarks.__main__ import main
from benchmarks.shapes import NAMED, SHAPES, Shape
from extra.encoders.bert import Bert
from tinygrad_lite import Tensor

torch = pytest.importorskip("torch")
from benchmarks import torch_gpt, torch_seq2seq, torch_side  # noqa: E402 (needs torch)
from tests.benchmarks.test_torch_gpt import assert_same_gradients, with_noise  # noqa: E402

pytestmark = pytest.mark.torch


def changed(name: str, **settings) -> Shape:
    shape = SHAPES[name]
    return replace(shape, options=shape.options.changed(**settings))


LEARNING = {
    "row 1": (changed("small", n_layer=2), 3),
    "row 1, for long": (changed("small", n_layer=2, n_head=2, n_embd=32, batch_size=4, bias=True), 200),
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
        update, _ = our_side.updates_of(shape, 1, until_end)
        ours = [update(number) for number in range(steps)]
    assert ours[0] == pytest.approx(theirs[0], abs=1e-5)
    assert ours == pytest.approx(theirs, abs=1e-3)
    assert ours[-1] < ours[0]


GRADIENTS = [
    ("translation", {"dropout": 0.0}),
    ("translation", {"dropout": 0.0, "norm_first": False}),
    ("bert-no-dropout", {"batch_size": 3}),
    ("vit-no-dropout", {"batch_size": 3}),
]


@pytest.mark.parametrize(("name", "settings"), GRADIENTS)
def test_gradients_equal_those_of_torch(name, settings):
    shape = changed(name, n_layer=2, n_embd=32, **settings)
    model = with_noise(our_side.make_model(shape), "float64")
    arrays = [x.astype("float64") if x.dtype.kind == "f" else x for x in shape.arguments(shape.batches()[0])]
    if shape.model is Bert:
        arrays[0][0, 40:] = shape.config.pad  # which made-up batches do not have
    batch = NAMED.get(shape.model, lambda *parts: parts)(*map(Tensor, arrays))
    torch_model = torch_side.torch_model_of(shape, model)
    of_torch = torch_seq2seq.our_names(torch_model) if shape.translates else torch_gpt.our_names(torch_model, model)
    assert_same_gradients(model, batch, torch_model, arrays, of_torch, 1e-7)


def test_all_sides_generate_the_same_tokens():
    pytest.importorskip("transformers")
    shape = changed("small", n_layer=2, block_size=24)
    model = our_side.make_model(shape).eval()
    ours, prompt = [3, *our_side.greedy(model, [3], 23)[0]], torch.tensor([[3]])
    uncached = torch_side.torch_model_of(shape, model).eval().generate(prompt, 23)
    cached = torch_side.hugging_face(model).generate(prompt, **torch_side.greedily(23))
    assert uncached[0].tolist() == cached[0].tolist() == ours


def test_the_command_measures_real_sides(capfd):
    assert main("--rows 1 --quick --turns 1 --threads 1 --workers 1".split()) == 0
    said = capfd.readouterr().out
    assert "- This project: malloc " in said
    assert "small in 1 process\n- torch: threads: 1; the system's malloc\n" in said
    assert said.count(" ms | **") == 2  # two columns of PyTorch with their ratios
