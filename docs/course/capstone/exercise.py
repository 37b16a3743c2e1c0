"""The capstone: nano.py with fifteen blanks, each written as `...`. README.md says in which order to fill them in.

    python docs/course/check.py capstone                      which pieces are right
    python docs/course/answers/capstone/exercise.py my.txt    when all are: learn from a text and write, as nano.py does

Shapes: B sequences, T positions, C width, H heads of width D, V characters.
"""

import sys
from importlib.util import find_spec

if sys.version_info < (3, 11) or not find_spec("numpy"):
    sys.exit(f"nano.py needs Python 3.11 or newer and NumPy (pip install numpy); this is {sys.version.split()[0]}")

import itertools
import json
import signal
from os import _exit, getenv, isatty, path
from pathlib import Path
from time import time

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
        self.characters, self.shape, self.numbers = characters, shape, {c: i for i, c in enumerate(characters)}
        self.weights, width, rng = {}, shape["n_embd"], np.random.default_rng(seed)
        sizes = {"token_embedding": (len(characters) + 1, width)}  # the last token is for unknown characters
        for i in range(shape["n_layer"]):
            sizes |= {f"blocks.{i}.mixer.{name}": (width, width) for name in ("query", "key", "value", "output")}
            sizes |= {f"blocks.{i}.mlp.up": (4 * width, width), f"blocks.{i}.mlp.down": (width, 4 * width)}
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


def train(model, text, steps=1400, batch_size=4, rate=2e-3, warmup=100, seed=1337, stopped=()):
    """Learn from the first nine tenths of a text until `stopped` has an element. Returns the number of updates."""
    optimizer, rng, began = AdamW(list(model.weights.values())), np.random.default_rng(seed), time()
    known, length = encode(model, text)[: int(0.9 * len(text))], model.shape["block_size"]
    for step in itertools.takewhile(lambda step: not stopped, range(steps)):
        batch = known[rng.integers(0, len(known) - length, (batch_size, 1)) + np.arange(length + 1)]
        loss = model.loss(batch[:, :-1], batch[:, 1:])
        loss.backward()
        optimizer.step(rate * min(1, (step + 1) / (warmup + 1), (steps - step) / (0.6 * steps)))
        if step in (0, 9) or (step + 1) % 50 == 0:
            print(f"step {step + 1} of {steps}: loss {loss.data.item():.3f}, {time() - began:.0f} s", file=sys.stderr)
    return optimizer.steps


def held_out_bits(model, text):
    """Bits per character on the last tenth of a text, from which `train` does not learn; on 100 windows at most."""
    ids, n = encode(model, text)[int(0.9 * len(text)) :], model.shape["block_size"] + 1
    windows = ids[: len(ids) // n * n].reshape(-1, n)[:100]
    return np.mean([model.loss(w[None, :-1], w[None, 1:]).data.item() for w in windows]) / np.log(2)


def encode(model, text):
    """The number of each character; characters that the model does not know get the next number after the last."""
    return np.array([model.numbers.get(character, len(model.characters)) for character in text])


def write(model, start, length=500, temperature=0.8, seed=1337):
    """Continue a text character by character; at temperature 0, always with the most probable one."""
    ids, rng = list(encode(model, start)), np.random.default_rng(seed)
    for _ in range(length):
        x = model.logits(np.array([ids[-model.shape["block_size"] :]])).data[0, -1, : len(model.characters)]
        p = np.exp((x.astype(np.float64) - x.max()) / max(temperature, 1e-9))
        ids.append(int(rng.choice(len(p), p=p / p.sum())) if temperature else int(x.argmax()))
        yield model.characters[ids[-1]]


FIXED = {"norm": "rmsnorm", "norm_weight": False, "norm_eps": 1e-5, "positions": "rotary", "rope_theta": 10000.0}
FIXED |= {"qk_norm": True, "activation": "relu2", "n_inner": 0, "bias": False, "tie_weights": True, "norm_first": True}
FIXED |= {"residual": True} | dict.fromkeys(("n_kv_head", "head_dim", "rope_scaling", "window"))  # None: as here


def save(path, model, steps):
    """A checkpoint that sample.py reads: the length of a JSON header, the header, all numbers (safetensors)."""
    about = {"family": "gpt", "model": model.shape | FIXED | {"vocab_size": len(model.characters) + 1, "dropout": 0.0}}
    about |= {"tokenizer": {"kind": "char", "characters": model.characters, "specials": ["<unk>"]}, "training": {}}
    about |= {"step": steps, "best_loss": None, "best_step": None, "base": {}, "format_version": 1, "corpus_sha256": ""}
    header, end = {"__metadata__": {"tinygrad_lite": json.dumps(about)}}, 0
    for name, w in model.weights.items():
        place = [end, end := end + w.data.nbytes]
        header[f"model.{name}"] = {"dtype": "F32", "shape": w.data.shape, "data_offsets": place}
    text = json.dumps(header).encode()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *(w.data for w in model.weights.values())]))


def load(path):
    """The model in a checkpoint written by this file, or by train.py with the preset goethe-char-modern."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header, data = json.loads(data[8:start]), data[start:]
    about = json.loads(header.pop("__metadata__")["tinygrad_lite"])
    if about["tokenizer"]["kind"] != "char" or not (FIXED | about["model"]).items() >= FIXED.items():
        sys.exit(f"nano.py: {path} has different parts from this model: python sample.py {path} writes with it")
    model = GPT(list(about["tokenizer"]["characters"]), dict.fromkeys(SHAPE, 0))  # empty: a file may ask for any size
    model.shape = {name: about["model"][name] for name in SHAPE}
    for name, x in header.items():
        model.weights[name[6:]] = Tensor(np.frombuffer(data[slice(*x["data_offsets"])], "f4").reshape(x["shape"]))
    return model


def learned(path, part=Path("out/nano.part"), kept=Path("out/nano.safetensors")):
    """A model that has learned the text in a file. Its weights are kept in the folder out."""
    if len(text := path.read_text(encoding="utf-8")) < 2580 or len(set(text)) > 20000 or "\0" in text:
        sys.exit(f"nano.py: {path.name!r} has {len(text)} characters: 2580 are needed, at most 20,000 kinds, no NUL")
    model, stopped = GPT(sorted(set(text)), SHAPE), []
    save(part, model, 0)  # a trial: whatever forbids it should do so now, and not after minutes
    print(f"learning {path.name!r}, {len(text):,} characters, for minutes; Ctrl-C ends it and saves", file=sys.stderr)
    signal.signal(signal.SIGINT, lambda *_: stopped.append(True))  # Ctrl-C interrupts neither an update nor the saving
    save(part, model, train(model, text, stopped=stopped))
    part.replace(kept)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print(f"saved {kept}; held out: {held_out_bits(model, text):.3f} bits per character", file=sys.stderr)
    return model


CONTROLS = {i: f"\\x{i:02x}" for i in (*range(9), *range(11, 32), *range(127, 160))}  # what a terminal obeys, escaped


def main(given, start="", *more):
    """Learn from a text or read weights; then continue `start`, or a line break."""
    path = Path(given)
    if more or start.startswith("--") or not path.is_file():
        sys.exit(f"nano.py: {given!r} must be an existing text or checkpoint; after it, at most a text to continue")
    model = load(path) if path.suffix == ".safetensors" else learned(path)
    for piece in itertools.chain([start], write(model, start or "\n"), "\n"):
        print(piece.translate(CONTROLS) if isatty(1) else piece, end="", flush=True)


if __name__ == "__main__":
    words = sys.argv[1:] or [f"{getenv('TINYGRAD_LITE_CACHE') or path.expanduser('~/.cache/tinygrad_lite')}/goethe.txt"]
    expected = Exception if words[0].endswith(".safetensors") else (OSError, UnicodeError, MemoryError)
    np.seterr(all="ignore")
    try:
        main(*words)
    except (KeyboardInterrupt, BrokenPipeError):  # by Ctrl-C, or by head, which has read enough
        _exit(130)  # without what is still to be written, of which Python would complain
    except expected as error:  # a damaged checkpoint can lead to any
        sys.exit(f"nano.py: reading {words[0]!r} or saving failed: {type(error).__name__}: {error}")
