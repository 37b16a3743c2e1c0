"""The capstone: nano.py with fifteen blanks, each written as `...`. README.md says in which order to fill them in.

    python docs/course/check.py capstone                  which pieces are right
    python docs/course/capstone/exercise.py my.txt        when all are: learn from a text and write, as nano.py does

Shapes: B sequences, T positions, C width, H heads of width D, V characters.
"""

import itertools
import json
import math
import sys
import time
from contextlib import suppress
from os import getenv
from pathlib import Path

import numpy as np

# --- a tensor that knows its derivatives ------------------------------------------------------------------------

clock = itertools.count()


class Tensor:
    """An array, and how it was computed: its parents, each with a function for the chain rule.

    The function turns dL/dy, the gradient of the loss with respect to this tensor, into dL/dx, the gradient with
    respect to the parent.
    """

    def __init__(self, data, *parents):
        self.data, self.grad, self.time = np.asarray(data), None, next(clock)
        self.parents = [(x, gradient) for x, gradient in parents if isinstance(x, Tensor)]

    def __add__(self, other):
        return Tensor(self.data + array(other), (self, lambda dy: dy), (other, lambda dy: dy))

    def __mul__(self, other): ...

    def __matmul__(self, other): ...

    def __pow__(self, n): ...

    def exp(self): ...

    def log(self):
        return Tensor(np.log(self.data), (self, lambda dy: dy / self.data))

    def relu(self):
        return Tensor(np.maximum(self.data, 0), (self, lambda dy: dy * (self.data > 0)))

    def sum(self, axis=None): ...

    def reshape(self, *shape):
        return Tensor(self.data.reshape(shape), (self, lambda dy: dy.reshape(self.data.shape)))

    def swapaxes(self, i, j):
        return Tensor(self.data.swapaxes(i, j), (self, lambda dy: dy.swapaxes(i, j)))

    def __getitem__(self, places): ...

    def backward(self):
        """Leave dL/dx in the .grad of every tensor that this one, the loss, depends on.

        Newest first: a tensor passes its gradient on only after everything computed from it has added its share.
        """
        ...


def array(x):
    """The array of a tensor; numbers and arrays, which need no gradient, are returned unchanged."""
    return x.data if isinstance(x, Tensor) else x


def unbroadcast(dy, shape):
    """Where NumPy repeated x to fit the other operand, each copy affected the loss, so their gradients are summed."""
    ...


# --- a GPT ------------------------------------------------------------------------------------------------------

SHAPE = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 256, "attention_scale": 0.375}


class GPT:
    """Characters, read from left to right -> the logits of the next one, at every position at once."""

    def __init__(self, characters, shape, seed=1337):
        self.characters, self.shape = characters, shape
        width, rng = shape["n_embd"], np.random.default_rng(seed)
        sizes = {"token_embedding": (len(characters) + 1, width)}  # the last token is for unknown characters
        for i in range(shape["n_layer"]):
            sizes |= {f"blocks.{i}.mixer.{name}": (width, width) for name in ("query", "key", "value", "output")}
            sizes |= {f"blocks.{i}.mlp.up": (4 * width, width), f"blocks.{i}.mlp.down": (width, 4 * width)}
        self.weights = {}
        for name, size in sizes.items():
            # What a block adds starts at 0: it passes its input through, and learns what to add.
            deviation = 0.0 if name.endswith((".output", ".down")) else 0.02
            self.weights[f"{name}.weight"] = Tensor(rng.standard_normal(size, np.float32) * np.float32(deviation))

    def logits(self, ids):
        """(B, T) integers -> (B, T, V). The table of characters is used at both ends."""
        ...

    def attention(self, x, name):
        """Each position compares its query with the keys up to its own, and takes a weighted mean of their values.

        softmax(Q K^T * scale) V, in H heads side by side: (B, T, C) -> (B, T, C).
        """
        ...

    def linear(self, x, name):
        """x W^T: every number in the result is a weighted sum of the numbers in x."""
        return x @ self.weights[f"{name}.weight"].swapaxes(0, 1)

    def loss(self, ids, targets):
        """Mean of -log p(target), in nats per character."""
        ...


def norm(x):
    """x / sqrt(mean(x^2)): the same direction, at a fixed length (RMS norm, arXiv:1910.07467)."""
    ...


def softmax(x):
    """e^x / sum of e^x: positive numbers that sum to 1."""
    ...


def turned(x):
    """Turn the pairs (i, i + D/2) of (B, T, H, D) by an angle that grows with the position.

    The product of a query and a key then depends on how far apart they are (rotary positions, arXiv:2104.09864).
    """
    ...


# --- an optimizer -----------------------------------------------------------------------------------------------


class AdamW:
    """Steps of about the same size for all weights: the mean gradient, divided by its usual size (arXiv:1711.05101)."""

    def __init__(self, weights, betas=(0.9, 0.99), decay=0.1):
        self.weights, self.betas, self.decay, self.steps = weights, betas, decay, 0
        self.means = [(np.zeros_like(w.data), np.zeros_like(w.data)) for w in weights]

    def step(self, rate): ...


# --- learning, writing, saving ----------------------------------------------------------------------------------


def train(model, text, steps=1400, batch_size=4, rate=2e-3, warmup=100, seed=1337):
    """Learn from the first nine tenths of a text, and print the loss on the rest. Returns the number of updates."""
    ids, length, rng = encode(model, text), model.shape["block_size"], np.random.default_rng(seed)
    known, held_out = np.split(ids, [int(0.9 * len(ids))])
    windows = held_out[: len(held_out) // (length + 1) * (length + 1)].reshape(-1, length + 1)[:100]
    if not len(windows):
        raise ValueError(f"{len(text)} characters, and at least {10 * length + 20} are needed")
    optimizer, began = AdamW(list(model.weights.values())), time.time()
    with suppress(KeyboardInterrupt):  # Ctrl-C ends the training early
        for step in range(steps):
            batch = known[rng.integers(0, len(known) - length, (batch_size, 1)) + np.arange(length + 1)]
            loss = model.loss(batch[:, :-1], batch[:, 1:])
            loss.backward()
            optimizer.step(rate * min(1, (step + 1) / (warmup + 1), (steps - step) / (0.6 * steps)))
            if (step + 1) % 50 == 0:
                print(f"step {step + 1}: loss {loss.data.item():.3f}, {time.time() - began:.0f} s", file=sys.stderr)
    losses = [model.loss(window[None, :-1], window[None, 1:]).data.item() for window in windows]
    print(f"held out: {np.mean(losses) / math.log(2):.3f} bits per character", file=sys.stderr)
    return optimizer.steps


def encode(model, text):
    """The number of each character; characters that the model does not know get the next number after the last."""
    numbers = {character: i for i, character in enumerate(model.characters)}
    return np.array([numbers.get(character, len(numbers)) for character in text])


def write(model, start, length=500, temperature=0.8, seed=1337):
    """Continue a text character by character; at temperature 0, always with the most probable one."""
    ids, rng = list(encode(model, start)), np.random.default_rng(seed)
    for _ in range(length):
        x = model.logits(np.array([ids[-model.shape["block_size"] :]])).data[0, -1, :-1].astype(np.float64)
        p = np.exp((x - x.max()) / max(temperature, 1e-9))
        ids.append(int(rng.choice(len(p), p=p / p.sum())) if temperature else int(x.argmax()))
        yield model.characters[ids[-1]]


FIXED = {"norm": "rmsnorm", "norm_weight": False, "norm_eps": 1e-5, "positions": "rotary", "rope_theta": 10000.0}
FIXED |= {"qk_norm": True, "activation": "relu2", "n_inner": 0, "bias": False, "tie_weights": True, "norm_first": True}
FIXED |= {"residual": True} | dict.fromkeys(("n_kv_head", "head_dim", "rope_scaling"))  # None: as here


def save(path, model, steps):
    """A checkpoint that sample.py reads: the length of a JSON header, the header, all numbers (safetensors)."""
    settings = model.shape | FIXED | {"vocab_size": len(model.characters) + 1, "dropout": 0.0}
    about = {"family": "gpt", "model": settings, "training": {}, "base": {}, "format_version": 1, "corpus_sha256": ""}
    about |= {"tokenizer": {"kind": "char", "characters": model.characters, "specials": ["<unk>"]}}
    about |= {"step": steps, "best_loss": None, "best_step": None}
    header, end = {"__metadata__": {"tinygrad_lite": json.dumps(about)}}, 0
    for name, w in model.weights.items():
        place, end = [end, end + w.data.nbytes], end + w.data.nbytes
        header[f"model.{name}"] = {"dtype": "F32", "shape": w.data.shape, "data_offsets": place}
    text = json.dumps(header).encode()
    path.write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *(w.data for w in model.weights.values())]))


def load(path):
    """The model in a checkpoint written by this file, or by train.py with the preset goethe-char-modern."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    about = json.loads(header.pop("__metadata__")["tinygrad_lite"])
    if about["tokenizer"]["kind"] != "char" or any(about["model"][name] != value for name, value in FIXED.items()):
        sys.exit(f"nano.py: {path} has different parts from this model: python sample.py {path} writes with it")
    model = GPT(about["tokenizer"]["characters"], {name: about["model"][name] for name in SHAPE})
    for name, w in model.weights.items():
        first, end = header[f"model.{name}"]["data_offsets"]
        w.data[...] = np.frombuffer(data[start + first : start + end], np.float32).reshape(w.data.shape)
    return model


def main(given, start="\n"):
    """Learn from a text and keep the weights, or read weights; then continue `start`."""
    path, kept = Path(given), Path("out/nano.safetensors")
    if path.suffix == ".safetensors":
        model = load(path)
    else:
        text = path.read_text(encoding="utf-8")
        kept.parent.mkdir(exist_ok=True)
        model = GPT(sorted(set(text)), SHAPE)
        save(kept, model, train(model, text))
        print(f"saved {kept}: python sample.py {kept} writes with it, too", file=sys.stderr)
    for piece in itertools.chain([start], write(model, start), "\n"):
        print(piece, end="", flush=True)


if __name__ == "__main__":
    words = sys.argv[1:] or [Path(getenv("TINYGRAD_LITE_CACHE") or Path.home() / ".cache/tinygrad_lite", "goethe.txt")]
    if len(words) > 2 or any(str(word).startswith("--") for word in words):
        sys.exit("nano.py: name a text or weights, and after them at most the beginning to continue; it has no options")
    try:
        main(*words)
    except FileNotFoundError:
        sys.exit(f"nano.py: there is no {words[0]}: name a text, as in python nano.py my.txt, or run train.py once")
    except (KeyboardInterrupt, BrokenPipeError):  # by Ctrl-C, or by head, which has read enough
        sys.exit(130)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"nano.py: {words[0]} must be a long enough text in UTF-8 or a checkpoint, and out a folder ({error})")
