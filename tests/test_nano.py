"""nano.py, the whole idea in one file, against the project: loss, gradients, 50 updates, weights in both directions."""

import importlib.util
import math
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

import nano
from gpt.model import GPT
from tests.gpt.configs import GPTConfig, load_trained
from tests.reliability.mutations import changed, taken_apart
from tests.tiny_runs import ROOT, finish, made_up_text, run_training, sampled, script
from tinygrad_lite import Tensor
from tinygrad_lite.optim import AdamW, trapezoid
from training.model_config import read_model_config

pytestmark = pytest.mark.cpu_only("NumPy alone")

LETTERS = [chr(ord("a") + i) for i in range(10)]
TINY = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 8, "attention_scale": 0.375}


def same_here(small: nano.GPT) -> GPT:
    """The project's model with the settings and the weights of one of nano.py."""
    size = {"vocab_size": len(small.characters) + 1, "dropout": 0.0}
    model = GPT(read_model_config(GPTConfig, size | small.shape | nano.FIXED))
    model.load_state_dict({name: weight.data for name, weight in small.weights.items()})
    return model


def random_model(shape: dict, deviation: float) -> nano.GPT:
    """A model of nano.py with random numbers of this deviation for weights."""
    small, rng = nano.GPT(LETTERS, shape), np.random.default_rng(0)
    for weight in small.weights.values():
        weight.data[...] = rng.standard_normal(weight.data.shape) * deviation
    return small


SIZES = [((1, 1, 4), 1, 1), ((3, 4, 24), 2, 9), ((2, 1, 32), 4, 16)]


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


def test_it_learns_the_same():
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
    held_out = nano.held_out_bits(small, text)
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
    assert held_out == pytest.approx(np.mean([loss for *_, loss in seen[50:]]) / math.log(2), rel=1e-6)
    windows = np.array([[*ids[0], targets[0, -1]] for ids, targets, _ in seen[50:]])
    assert "".join(small.characters[i] for i in windows.ravel()) in text[int(0.9 * len(text)) :]


def test_the_gradient_of_what_is_known_for_certain_is_zero_and_no_error():
    """A text of one single character: its probability becomes 1, and then there is nothing to learn."""
    small = nano.GPT(["a"], TINY)
    assert nano.train(small, "a" * 300, steps=120, rate=0.1, warmup=1) == 120
    assert 0 <= nano.held_out_bits(small, "a" * 300) < 0.01


def test_its_weights_are_written_with_by_sample_py(workplace, capsys):
    small = random_model(TINY, 0.4)
    Path("out").mkdir()
    nano.save(Path("out/nano.safetensors"), small, 3)
    trained = load_trained(Path("out/nano.safetensors"))
    assert trained.config == same_here(small).config
    text = "".join(nano.write(small, "cab", 5, temperature=0))
    words = ["out/nano.safetensors", "--start", "cab", "--greedy", "--max_new_tokens", "5"]
    assert sampled(capsys, *words).out == f"cab{text}\n"
    again = nano.load(Path("out/nano.safetensors"))
    assert "".join(nano.write(again, "cab", 5, temperature=0)) == text


def test_it_writes_with_the_weights_of_train_py(workplace, capsys):
    run = run_training("goethe-char-modern", max_iters=9, learning_rate=0.05, block_size=32)
    text = "".join(nano.write(nano.load(run.best), "der ", 20, temperature=0))
    assert sampled(capsys, run.best, "--start=der ", "--greedy", "--max_new_tokens=20").out == f"der {text}\n"


@pytest.fixture
def ended(monkeypatch, workplace, capsys):
    """A function that runs nano.py as a program, and returns its exit status or last sentence, and what it wrote."""
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", str(workplace))

    def run(*words: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["nano.py", *words])
        capsys.readouterr()
        status = None
        with np.errstate():  # which the program changes
            try:
                spec = importlib.util.spec_from_file_location("__main__", ROOT / "nano.py")
                spec.loader.exec_module(importlib.util.module_from_spec(spec))
            except SystemExit as end:
                status = end.code
        return status, capsys.readouterr().out

    return run


def test_a_text_that_it_cannot_use_is_one_sentence(ended):
    files = {"\x1b[2J": b"", "short": b"Ach!" * 644, "latin": b"Gr\xfcn" * 2000, "zeros": b"A\0c\0h\0" * 999}
    files["kinds"] = "".join(map(chr, range(20_000, 40_001))).encode()
    for name, content in files.items():
        Path(name).write_bytes(content)
    os.mkfifo("pipe")
    told = "must be an existing text or checkpoint; after it, at most a text to continue"
    cases = [(words, f"{words[0]!r} {told}") for words in (["missing"], ["pipe"], ["short", "Ach", "was"])]
    told = "characters: 2580 are needed, at most 20,000 kinds, no NUL"
    counts = {"\x1b[2J": 0, "short": 2576, "zeros": 5994, "kinds": 20001}
    cases += [([name], f"{name!r} has {count} {told}") for name, count in counts.items()]
    cases += [(["latin"], "reading 'latin' or saving failed: UnicodeDecodeError: 'utf-8' codec")]
    for words, sentence in cases:
        end, out = ended(*words)
        assert end.startswith(f"nano.py: {sentence}"), words
        assert (out, "\n" in end, "\x1b" in end) == ("", False, False)
    assert not Path("out").exists()
    Path("out").write_text("a file", encoding="utf-8")
    Path("long").write_text("Ach! " * 999, encoding="utf-8")
    end, out = ended("long")  # before it learns for minutes
    assert (end.startswith("nano.py: reading 'long' or saving failed: FileExistsError: "), out) == (True, "")


def test_without_a_home_folder_the_text_is_missing(ended, monkeypatch):
    monkeypatch.delenv("TINYGRAD_LITE_CACHE")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as in some containers
    assert ended()[0].startswith("nano.py: '~/.cache/tinygrad_lite/goethe.txt' must be an existing text or checkpoint")


def test_weights_that_it_cannot_use_are_one_sentence(ended):
    """Settings of any value, tensors of any shape, files cut anywhere: no traceback, no hang, no other model's text."""
    nano.save(Path("right.safetensors"), random_model(TINY, 0.4), 3)
    right = Path("right.safetensors").read_bytes()
    numbers = taken_apart(right)[2]
    begin = len(right) - len(numbers)
    for name, value in {"window": 3, "norm": [], "bias": True}.items():
        Path("x.safetensors").write_bytes(changed(right, "model", **{name: value}))
        assert "x.safetensors has different parts from this model" in ended("x.safetensors")[0]
    values = {"n_layer": 10**9, "n_head": 3, "block_size": -7, "attention_scale": math.nan}
    damaged = [changed(right, "model", **{name: value}) for name, value in values.items()]
    damaged += [changed(right, "tokenizer", characters=value) for value in ([], 5, [[1]] * 10)]
    damaged += [changed(right, "model.token_embedding.weight", shape=[10**12, 8])]
    damaged += [right[:cut] for cut in (0, 100, len(right) - 1)]
    damaged += [right[:begin] + np.full(len(numbers) // 4, np.nan, np.float32).tobytes()]
    damaged += [(10**5).to_bytes(8, "little") + b"[" * 10**5, (2).to_bytes(8, "little") + b"{}" + numbers]
    for content in damaged:
        Path("x.safetensors").write_bytes(content)
        end, out = ended("x.safetensors", "f")
        assert end.startswith("nano.py: reading 'x.safetensors' or saving failed: ")
        assert (out in ("", "f"), "\n" in end) == (True, False)


def test_ctrl_c_ends_the_training_and_not_the_saving(workplace):
    """Twice at once in training, and once in the evaluation or while it writes; out is removed while it learns."""
    Path("long.txt").write_text(made_up_text(2000), encoding="utf-8")
    process = script("nano.py", "long.txt", OPENBLAS_NUM_THREADS="1")
    seen = [process.stderr.readline().decode() for _ in range(2)]
    shutil.rmtree("out")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    seen += [process.stderr.readline().decode()]
    process.send_signal(signal.SIGINT)
    assert finish(process)[::2] == (130, "")
    assert re.match(r"learning 'long.txt', [\d,]+ characters, for minutes; Ctrl-C ends it and saves\n", seen[0])
    assert re.match(r"step 1 of 1400: loss \d\.\d{3}, \d+ s\n", seen[1])
    assert re.match(r"saved out/nano.safetensors; held out: \d\.\d{3} bits per character\n", seen[2])
    assert load_trained(Path("out/nano.safetensors")).config.n_layer == 4
    assert [path.name for path in Path("out").iterdir()] == ["nano.safetensors"]
