"""Attention alone learns to repeat a sequence, and an induction head is born.

    python docs/course/15-inside/induction.py                                  two tables, and induction.svg
    python docs/course/15-inside/induction.py --layers 1 --max_iters 1000      one layer, which cannot do it

A sequence is a piece of 8 to 16 random tokens, all different, repeated until there are 33. The length of the piece is
random too, so that counting positions does not help: to know what comes next, a model must find where the token
that it is reading occurred before.

Reference: Olsson et al. 2022 (arXiv:2209.11895).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from svg import COLOURS, Chart, Page, check_plot
from threadpoolctl import threadpool_limits
from without import without_heads

from tinygrad_lite import Tensor, manual_seed, no_grad
from tinygrad_lite import functional as F
from tinygrad_lite.config import option
from tinygrad_lite.nn import Embedding, Linear, Module, RMSNorm, recorded
from tinygrad_lite.optim import AdamW
from tinygrad_lite.transformer import MultiHeadAttention
from training.cli.command_line import read_command
from training.cli.console import run_command

TOKENS, LENGTH, WIDTH, HEADS, ROWS = 64, 32, 64, 2, 32
PIECE = 8, 16  # tokens, at least and at most
EVERY = 10  # updates between two points of the curves


@dataclass
class InductionOptions:
    """The options of the experiment."""

    layers: int = option(2, "layers of attention", low=1, high=4)
    max_iters: int = option(400, "updates", low=1)
    seed: int = option(1337, "random seed", low=0)
    plot: str = option("induction.svg", "plot to write: .svg", is_path=True)


class Layer(Module):
    """x + attention(norm(x)), without a feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mixer = RMSNorm(WIDTH), MultiHeadAttention(WIDTH, HEADS, bias=False)

    def forward(self, x: Tensor, is_causal: bool) -> Tensor:
        return x + self.mixer(self.norm(x), is_causal=is_causal)


class AttentionOnly(Module):
    """A GPT without feed-forward parts: (B, T) tokens -> (B, T, V) logits."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.tokens, self.positions = Embedding(TOKENS, WIDTH), Embedding(LENGTH, WIDTH)
        self.blocks = [Layer() for _ in range(layers)]
        self.norm, self.output = RMSNorm(WIDTH), Linear(WIDTH, TOKENS, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, is_causal=True)
        return self.read(x)

    def read(self, x: Tensor) -> Tensor:
        """The logits that the output of the last layer stands for: (B, T, C) -> (B, T, V)."""
        return self.output(self.norm(x))


def sequences(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Random sequences, each of which repeats its piece: (B, T + 1)."""
    pieces = rng.permuted(np.tile(np.arange(TOKENS), (rows, 1)), axis=1)
    lengths = rng.integers(PIECE[0], PIECE[1] + 1, (rows, 1))
    return np.take_along_axis(pieces, np.arange(LENGTH + 1) % lengths, axis=1)


def after_the_same(ids: np.ndarray) -> np.ndarray:
    """Whether the token before s is the one at t, for s <= t: (B, T) tokens -> (B, T, T)."""
    same = np.zeros((*ids.shape, ids.shape[1]), bool)
    same[:, :, 1:] = ids[:, :, None] == ids[:, None, :-1]
    return np.tril(same)


def scores(attention: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """What heads look at: (B, H, T, T) weights and (B, T) tokens -> (2, H).

    [0] is the mean weight on the token before, at the positions with a new token; [1], the induction score, is the mean
    weight on what followed the same token, at the positions with a token that has occurred before.
    """
    follows = after_the_same(ids)
    is_known = follows.any(-1)
    is_new = ~is_known & (np.arange(ids.shape[1]) > 0)  # nothing comes before the first
    before = np.eye(ids.shape[1], k=-1)
    looks = ((before, is_new), (follows[:, None], is_known))
    return np.array([(attention * places).sum(-1).swapaxes(0, 1)[:, here].mean(-1) for places, here in looks])


def measure(model: AttentionOnly, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean bits after a new token, and after one that has occurred before (2,); the scores of all heads (2, LH)."""
    with no_grad(), recorded(model, MultiHeadAttention) as calls:
        log_p = F.log_softmax(model(Tensor(ids[:, :-1]))).numpy()
        weights = [call.module.weights(*call.args, is_causal=True).numpy() for call in calls]
    bits = -np.take_along_axis(log_p, ids[:, 1:, None], axis=-1)[..., 0] / np.log(2)
    is_known = after_the_same(ids[:, :-1]).any(-1)
    of_heads = np.concatenate([scores(layer, ids[:, :-1]) for layer in weights], axis=1)
    return np.array([bits[~is_known].mean(), bits[is_known].mean()]), of_heads


def train(model: AttentionOnly, max_iters: int, seed: int) -> Iterator[int]:
    """Learn to predict the next token of new sequences; yields the number of updates so far."""
    rng = np.random.default_rng(seed)
    optimizer = AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.99), weight_decay=0.0)
    for step in range(max_iters):
        yield step
        ids = sequences(rng, ROWS)
        loss = F.cross_entropy(model(Tensor(ids[:, :-1])).flatten(0, 1), Tensor(ids[:, 1:].ravel()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    yield max_iters


def draw(steps: list[int], losses: np.ndarray, of_heads: np.ndarray, names: list[str], file: str) -> None:
    """The losses (N, 2) and the scores of each head (N, 2, LH) against the N numbers of updates."""
    page = Page(640, 570, "An induction head is born")
    panels = (
        ("loss in bits per token", losses, ["after a new token", "after a known token"], 8),
        ("weight on the token before", of_heads[:, 0], names, 1),
        ("weight on what followed the same token", of_heads[:, 1], names, 1),
    )
    for number, (title, curves, labels, top) in enumerate(panels):
        chart = Chart(page, 52, 66 + 170 * number, 420, 120, (0, steps[-1]), (0, top))
        chart.axes(np.linspace(0, steps[-1], 5).tolist(), [0, top / 2, top], "updates" if number == 2 else "", title)
        for curve, colour in zip(curves.T, COLOURS, strict=False):
            chart.line(steps, curve.tolist(), colour)
        page.legend(490, chart.top + 20, labels)
    page.write(file)


def row(*cells: str | int | float) -> None:
    """Print a row of a table."""
    print("".join(f"{cell:>16}" if isinstance(cell, str | int) else f"{cell:>16.2f}" for cell in cells), flush=True)


def main(argv: list[str]) -> int:
    """Train, print how the heads develop and what each is worth, and draw the curves."""
    about = "Train attention alone to repeat a sequence, and watch its heads."
    options, _ = read_command(InductionOptions, argv, "python docs/course/15-inside/induction.py", about)
    check_plot(options.plot)
    manual_seed(options.seed)
    model, held_out = AttentionOnly(options.layers), sequences(np.random.default_rng((options.seed, 1)), 64)
    heads = list(np.ndindex(options.layers, HEADS))
    names = [f"{layer + 1}, {head + 1}" for layer, head in heads]
    steps, losses, of_heads = [], [], []
    row("updates", "bits, new", "bits, known", "one before", "after the same")
    with threadpool_limits(1):  # the products are too small for more threads
        for step in train(model, options.max_iters, options.seed):
            if step % EVERY == 0 or step == options.max_iters:
                loss, shares = measure(model, held_out)
                steps, losses, of_heads = [*steps, step], [*losses, loss], [*of_heads, shares]
            if step % (5 * EVERY) == 0 or step == options.max_iters:
                row(step, *loss, *shares.max(axis=1))
        print()
        row("layer, head", "one before", "after the same", "known, without")
        for head, name, share in zip(heads, names, shares.T, strict=True):
            with without_heads(model, [head]):
                row(name, *share, measure(model, held_out)[0][1])
    draw(steps, np.array(losses), np.array(of_heads), [f"head {name}" for name in names], options.plot)
    return 0


if __name__ == "__main__":
    run_command("induction", main)
