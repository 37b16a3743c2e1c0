"""The whole idea in one file: a tensor that knows its derivatives, a GPT, an optimizer, training, and writing.

    python nano.py my.txt                          learn from a UTF-8 text for a few minutes, save, and write
    python nano.py                                 the same with the text that train.py has fetched
    python nano.py out/nano.safetensors "Habe "    write with trained weights, from this file or from train.py

It needs only NumPy. The rest of the project does the same with more models, texts and options, is checked by thousands
of tests, and is twice as fast. Weights, settings and formulas have the same names there, so whatever is unclear here
can be looked up; a test compares loss and gradients. Shapes: B sequences, T positions, C width, H heads of width D, V
characters.
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

    def __mul__(self, other):
        a, b = self.data, array(other)
        return Tensor(a * b, (self, lambda dy: dy * b), (other, lambda dy: dy * a))

    def __matmul__(self, other):
        a, b = self.data, array(other)
        return Tensor(a @ b, (self, lambda dy: dy @ b.swapaxes(-1, -2)), (other, lambda dy: a.swapaxes(-1, -2) @ dy))

    def __pow__(self, n):
        return Tensor(self.data**n, (self, lambda dy: dy * n * self.data ** (n - 1)))

    def exp(self):
        y = np.exp(self.data)
        return Tensor(y, (self, lambda dy: dy * y))

    def log(self):
        return Tensor(np.log(self.data), (self, lambda dy: dy / self.data))

    def relu(self):
        return Tensor(np.maximum(self.data, 0), (self, lambda dy: dy * (self.data > 0)))

    def sum(self, axis=None):
        return Tensor(self.data.sum(axis, keepdims=True), (self, lambda dy: np.broadcast_to(dy, self.data.shape)))

    def reshape(self, *shape):
        return Tensor(self.data.reshape(shape), (self, lambda dy: dy.reshape(self.data.shape)))

    def swapaxes(self, i, j):
        return Tensor(self.data.swapaxes(i, j), (self, lambda dy: dy.swapaxes(i, j)))

    def __getitem__(self, places):
        def gradient(dy):
            dx = np.zeros_like(self.data)
            np.add.at(dx, places, dy)  # an element that was taken twice gets both gradients
            return dx

        return Tensor(self.data[places], (self, gradient))

    def backward(self):
        """Leave dL/dx in the .grad of every tensor that this one, the loss, depends on.

        Newest first: a tensor passes its gradient on only after everything computed from it has added its share.
        """
        found, stack = {self}, [self]
        while stack:
            new = {x for x, _ in stack.pop().parents} - found
            found |= new
            stack += new
        self.grad = np.ones_like(self.data)
        for y in sorted(found, key=lambda tensor: -tensor.time):
            for x, gradient in y.parents:
                dx = unbroadcast(gradient(y.grad), x.data.shape)
                x.grad = dx if x.grad is None else x.grad + dx


def array(x):
    """The array of a tensor; numbers and arrays, which need no gradient, are returned unchanged."""
    return x.data if isinstance(x, Tensor) else x


def unbroadcast(dy, shape):
    """Where NumPy repeated x to fit the other operand, each copy affected the loss, so their gradients are summed."""
    if dy.shape != shape:
        dy = dy.sum(tuple(range(dy.ndim - len(shape))))
        dy = dy.sum(tuple(i for i, n in enumerate(shape) if n < dy.shape[i]), keepdims=True)
    return dy


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
        table = self.weights["token_embedding.weight"]
        x = table[ids]
        for i in range(self.shape["n_layer"]):
            x = x + self.attention(norm(x), f"blocks.{i}.mixer")
            x = x + self.linear(self.linear(norm(x), f"blocks.{i}.mlp.up").relu() ** 2, f"blocks.{i}.mlp.down")
        return norm(x) @ table.swapaxes(0, 1)

    def attention(self, x, name):
        """Each position compares its query with the keys up to its own, and takes a weighted mean of their values.

        softmax(Q K^T * scale) V, in H heads side by side: (B, T, C) -> (B, T, C).
        """
        batch, length, width = x.data.shape
        heads = (batch, length, self.shape["n_head"], width // self.shape["n_head"])
        q, k, v = (self.linear(x, f"{name}.{part}").reshape(*heads) for part in ("query", "key", "value"))
        q, k, v = (part.swapaxes(1, 2) for part in (turned(norm(q)), turned(norm(k)), v))  # (B, H, T, D)
        future = np.triu(np.full((length, length), -np.inf, np.float32), 1)
        p = softmax(q @ k.swapaxes(-1, -2) * self.shape["attention_scale"] + future)  # (B, H, T, T)
        return self.linear((p @ v).swapaxes(1, 2).reshape(batch, length, width), f"{name}.output")

    def linear(self, x, name):
        """x W^T: every number in the result is a weighted sum of the numbers in x."""
        return x @ self.weights[f"{name}.weight"].swapaxes(0, 1)

    def loss(self, ids, targets):
        """Mean of -log p(target), in nats per character."""
        x = self.logits(ids).reshape(targets.size, -1)
        x = x + -x.data.max(-1, keepdims=True)  # changes no probability, but keeps e^x from overflowing
        log_p = x + x.exp().sum(-1).log() * -1.0
        return log_p[np.arange(targets.size), targets.ravel()].sum() * (-1.0 / targets.size)


def norm(x):
    """x / sqrt(mean(x^2)): the same direction, at a fixed length (RMS norm, arXiv:1910.07467)."""
    return x * ((x * x).sum(-1) * (1 / x.data.shape[-1]) + 1e-5) ** -0.5


def softmax(x):
    """e^x / sum of e^x: positive numbers that sum to 1."""
    e = (x + -x.data.max(-1, keepdims=True)).exp()
    return e * e.sum(-1) ** -1.0


def turned(x):
    """Turn the pairs (i, i + D/2) of (B, T, H, D) by an angle that grows with the position.

    The product of a query and a key then depends on how far apart they are (rotary positions, arXiv:2104.09864).
    """
    length, half = x.data.shape[1], x.data.shape[3] // 2
    angles = np.arange(length)[:, None] * 10000.0 ** -(np.arange(half) / half)  # (T, D/2)
    cos, sin = (np.tile(f(angles), 2)[:, None].astype(np.float32) for f in (np.cos, np.sin))  # (T, 1, D)
    quarter = np.eye(2 * half, k=half, dtype=np.float32) - np.eye(2 * half, k=-half, dtype=np.float32)
    return x * cos + (x @ quarter) * sin


# --- an optimizer -----------------------------------------------------------------------------------------------


class AdamW:
    """Steps of about the same size for all weights: the mean gradient, divided by its usual size (arXiv:1711.05101)."""

    def __init__(self, weights, betas=(0.9, 0.99), decay=0.1):
        self.weights, self.betas, self.decay, self.steps = weights, betas, decay, 0
        self.means = [(np.zeros_like(w.data), np.zeros_like(w.data)) for w in weights]

    def step(self, rate):
        self.steps += 1
        one, two = self.betas
        length = math.sqrt(sum(float((w.grad**2).sum()) for w in self.weights))
        for w, (m, v) in zip(self.weights, self.means, strict=True):
            g = w.grad * min(1.0, 1 / length)  # clipped, so that one odd batch cannot undo what was learned
            m[...] = one * m + (1 - one) * g
            v[...] = two * v + (1 - two) * g * g
            mean, size = m / (1 - one**self.steps), np.sqrt(v / (1 - two**self.steps)) + 1e-8
            w.data -= rate * (mean / size + self.decay * w.data)
            w.grad = None


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
