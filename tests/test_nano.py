"""nano.py, the whole idea in one file, against the project: loss, gradients, 50 updates, weights in both directions."""

import math
from pathlib import Path

import numpy as np
import pytest

import nano
import sample
from gpt.config import GPTConfig
from gpt.model import GPT
from gpt.trained import load_trained
from tests.tiny_runs import finish, made_up_text, run_training, script
from tinygrad_lite import Tensor
from tinygrad_lite.optim import AdamW, trapezoid

pytestmark = pytest.mark.cpu_only("NumPy alone")

LETTERS = [chr(ord("a") + i) for i in range(10)]
TINY = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 8, "attention_scale": 0.375}


def same_here(small: nano.GPT) -> GPT:
    """The project's model with the settings and the weights of one of nano.py."""
    model = GPT(GPTConfig(vocab_size=len(small.characters) + 1, **small.shape, **nano.FIXED))
    model.load_state_dict({name: weight.data for name, weight in small.weights.items()})
    return model


def random_model(shape: dict, deviation: float) -> nano.GPT:
    """A model of nano.py with random numbers of this deviation for weights."""
    small, rng = nano.GPT(LETTERS, shape), np.random.default_rng(0)
    for weight in small.weights.values():
        weight.data[...] = rng.standard_normal(weight.data.shape) * deviation
    return small


SIZES = [((1, 1, 4), 1, 1), ((1, 2, 8), 3, 5), ((2, 2, 16), 2, 12), ((3, 4, 24), 2, 9), ((2, 1, 32), 4, 16)]


@pytest.mark.parametrize(("sizes", "batch", "length"), SIZES)
def test_loss_and_all_gradients_are_those_of_the_project(sizes, batch, length):
    shape = dict(zip(("n_layer", "n_head", "n_embd"), sizes, strict=True)) | {"block_size": 16, "attention_scale": 0.3}
    small = random_model(shape, 0.2)
    model = same_here(small)
    ids = np.random.default_rng(1).integers(0, len(LETTERS) + 1, (batch, length + 1))
    loss = small.loss(ids[:, :-1], ids[:, 1:])
    loss.backward()
    expected = model.loss((Tensor(ids[:, :-1]), Tensor(ids[:, 1:])))
    expected.backward()
    assert (loss.data.dtype, loss.data.item()) == (np.float32, pytest.approx(expected.item(), rel=1e-5))
    for name, parameter in model.named_parameters():
        found, right = small.weights[name].grad, parameter.grad.numpy()
        assert np.abs(found - right).max() <= 1e-5 * np.abs(right).max(), name
        assert found.any() == right.any()


def test_it_learns_the_same(capsys):
    """The losses of 50 updates: with a rate that rises, stays and falls, with clipping and decay."""
    seen = []

    class Recorded(nano.GPT):
        def loss(self, ids, targets):
            loss = super().loss(ids, targets)
            seen.append((ids, targets, loss.data.item()))
            return loss

    text = made_up_text()
    small = Recorded(sorted(set(text)), TINY | {"n_layer": 2})
    model = same_here(small)
    assert nano.train(small, text, steps=50, rate=0.01, warmup=5) == 50
    optimizer, losses = AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.1), []
    for step, (ids, targets, _) in enumerate(seen[:50]):
        optimizer.zero_grad()
        loss = model.loss((Tensor(ids), Tensor(targets)))
        loss.backward()
        optimizer.clip_grad_norm(1.0)
        optimizer.lr = trapezoid(step, 0.01, 5, 50, 0.0, 0.4)
        optimizer.step()
        losses.append(loss.item())
    np.testing.assert_allclose([loss for *_, loss in seen[:50]], losses, atol=1e-4)
    assert losses[-1] < losses[0] - 0.3
    held_out = np.mean([loss for *_, loss in seen[50:]]) / math.log(2)
    assert f"held out: {held_out:.3f} bits per character" in capsys.readouterr().err


def test_its_weights_are_written_with_by_sample_py(workplace, capsys):
    small = random_model(TINY, 0.4)
    Path("out").mkdir()
    nano.save(Path("out/nano.safetensors"), small, 3)
    trained = load_trained(Path("out/nano.safetensors"))
    assert trained.config == same_here(small).config
    text = "".join(nano.write(small, "cab", 5, temperature=0))
    capsys.readouterr()
    assert sample.main(["out/nano.safetensors", "--start", "cab", "--greedy", "--max_new_tokens", "5"]) == 0
    assert capsys.readouterr().out == f"cab{text}\n"
    again = nano.load(Path("out/nano.safetensors"))
    assert "".join(nano.write(again, "cab", 5, temperature=0)) == text
    assert "".join(nano.write(again, "cab", 40)) != "".join(nano.write(again, "cab", 40, seed=2))


def test_it_writes_with_the_weights_of_train_py(workplace, capsys):
    run = run_training("goethe-char-modern", max_iters=9, learning_rate=0.05, block_size=32)
    nano.main(str(run.best), "der ")
    capsys.readouterr()
    assert sample.main([str(run.best), "--start", "der ", "--greedy", "--max_new_tokens", "20"]) == 0
    expected = capsys.readouterr().out
    small = nano.load(run.best)
    assert "der " + "".join(nano.write(small, "der ", 20, temperature=0)) + "\n" == expected


def test_what_it_cannot_use_is_one_sentence(workplace):
    def refused(*words):
        settings = {"TINYGRAD_LITE_CACHE": str(workplace), "PYTHONIOENCODING": "utf-8"}
        status, out, err = finish(script("nano.py", *words, **settings))
        assert (status, out, len(err.splitlines())) == (1, "", 1)
        return err

    Path("short.txt").write_text("Ach!", encoding="utf-8")
    Path("latin.txt").write_bytes(b"Gr\xfcn" * 2000)
    Path("broken.safetensors").write_bytes(b"\x05\0\0\0\0\0\0\0{}   ")
    for words, reason in (
        ([], f"nano.py: there is no {workplace / 'goethe.txt'}: name a text"),
        (["missing.txt"], "nano.py: there is no missing.txt: name a text"),
        (["short.txt"], "4 characters, and at least 2580 are needed"),
        (["latin.txt"], "nano.py: latin.txt must be a long enough text in UTF-8 or a checkpoint"),
        (["broken.safetensors"], "nano.py: broken.safetensors must be a long enough text in UTF-8 or a checkpoint"),
        (["short.txt", "--steps"], "it has no options"),
        (["short.txt", "Ach", "was"], "at most the beginning to continue"),
    ):
        assert reason in refused(*words)
    Path("out").rmdir()
    Path("out").write_text("a file", encoding="utf-8")
    Path("long.txt").write_text("Ach! " * 999, encoding="utf-8")
    assert "and out a folder (" in refused("long.txt")  # before it learns for minutes
