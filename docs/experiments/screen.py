"""Candidates for the default: train the preset `goethe` with one change that no option makes, and measure it.

    python docs/experiments/screen.py muon-heads 101                a change and a seed
    python docs/experiments/screen.py base 101 --block_size 256     options, too; and how long a step takes:
    python docs/experiments/screen.py --costs muon-heads "base --block_size 256 --batch_size 4"

One process; a row of screening.csv. Nothing here is meant to stay: a change that pays becomes part of the code.
"""

import csv
import functools
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from extra.families import FAMILIES
from gpt.data import bits_per_character, epoch_starts
from text.tokenizers.bpe import split_words
from tinygrad_lite import functional as F
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.nn import Dropout, Linear, Module
from tinygrad_lite.ops.common import node
from tinygrad_lite.optim import Muon, muon_groups
from tinygrad_lite.optim.muon import muon_fused
from tinygrad_lite.random import keyed_rng, random_key
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import FeedForward, MultiHeadAttention
from training.cli.console import run_command, say
from training.folder import tune_memory
from training.start import read_setup

muon = sys.modules[muon_fused.__module__]  # the name in the package is that of the function
ROWS = Path(__file__).parent / "screening.csv"


class Run:
    """A run of the default, whose parts a change may replace."""

    def __init__(self, seed: int, more: list[str]) -> None:
        setup = read_setup(["goethe", "--seed", str(seed), "--overwrite", *more], FAMILIES)
        self.seed, self.options, self.task = seed, setup.options, setup.make_task()
        self.model, self.steps = setup.make_model(self.task.tokenizer), setup.options.max_iters
        self.optimizer = setup.options.make_optimizer(self.model)
        self.rate = setup.options.learning_rate_at
        self.batches = self.task.batches
        self.loss: Callable[[tuple, int], Tensor] = lambda batch, step: self.model.loss(batch)
        self.before_update: Callable[[int], None] = lambda step: None
        self.finish: Callable[[], None] = lambda: None

    def fall(self, step: int, shape: Callable[[float], float]) -> float:
        """The schedule of the default, in the same proportions for any number of steps, with a fall of any shape."""
        o = self.options
        if step < o.warmup_iters:
            return o.learning_rate * (step + 1) / (o.warmup_iters + 1)
        return o.learning_rate * shape(max(0.0, (step / self.steps - 0.4) / 0.6))

    def train(self) -> None:
        """All updates, as in train.py."""
        for step in range(self.steps):
            self.step(step)
            if step % 250 == 0:
                say(f"step {step}")
        self.finish()

    def step(self, step: int) -> None:
        """One update."""
        self.optimizer.zero_grad()
        for micro, (batch, share) in enumerate(self.batches(step)):
            with random_key(self.seed, step, micro, 0):
                (self.loss(batch, step) * share).backward()
        self.optimizer.clip_grad_norm(self.options.grad_clip)
        self.optimizer.lr = self.rate(step)
        self.before_update(step)
        self.optimizer.step()

    def bits(self) -> float:
        """Bits per character on the held-out tenth."""
        nats, count = 0.0, 0
        with no_grad(), self.model.evaluating():
            for batch, tokens in self.task.validation_batches():
                nats += self.model.loss(batch).item() * tokens
                count += tokens
        return bits_per_character(nats / count, self.task.data.chars_per_token)


# --- the optimizer --------------------------------------------------------------------------------------------


def untied(run: Run) -> None:
    """Table and head are two matrices; the table learns at five times the rate, the head at three tenths of it."""
    groups = []
    for group in muon_groups(run.model, run.options.weight_decay):
        single = not group.get("use_muon", True)
        groups += [group | {"params": [pair]} for pair in group["params"]] if single else [group]
    run.optimizer = Muon(groups, run.options.learning_rate, **run.options.optimizer_settings())
    factors = {"token_embedding.weight": 5.0, "lm_head.weight": 0.3}

    def before_update(step: int) -> None:
        for group in run.optimizer.param_groups:
            group["lr"] = run.rate(step) * factors.get(group["param_names"][0], 1.0)

    run.before_update = before_update


def muon_heads(run: Run) -> None:
    """Muon makes each head's part of the queries, keys and values orthogonal, instead of the whole matrix."""
    whole, names = (
        muon.newton_schulz_fused,
        next(g["param_names"] for g in run.optimizer.param_groups if g["shape"] == (128, 128)),
    )
    place = [0]

    def by_head(x: np.ndarray) -> None:
        for matrix in x if x.shape[1:] == (128, 128) else ():
            is_output = ".output." in names[place[0] % len(names)]
            place[0] += 1
            whole(matrix[None] if is_output else matrix.reshape(4, 32, 128))
        if x.shape[1:] != (128, 128):
            whole(x)

    muon.newton_schulz_fused = by_head


def normuon(run: Run, beta: float = 0.95) -> None:
    """Rows of the orthogonal update divided by the root of a running mean of their squares (NorMuon)."""
    whole, state, place = muon.newton_schulz_fused, {}, [0]
    calls = sum(
        -(-len(g["params"]) // max(1, muon.BLOCK // math.prod(g["shape"])))
        for g in run.optimizer.param_groups
        if g["use_muon"]
    )

    def normalised(x: np.ndarray) -> None:
        whole(x)
        mean = state.setdefault(place[0] % calls, np.zeros((*x.shape[:2], 1), np.float32))
        place[0] += 1
        norm = np.sqrt((x * x).sum((1, 2), keepdims=True))
        mean *= beta
        mean += (1 - beta) * (x * x).mean(2, keepdims=True)
        x /= np.sqrt(mean) + 1e-8
        x *= norm / np.sqrt((x * x).sum((1, 2), keepdims=True))

    muon.newton_schulz_fused = normalised


def cautious(_: Run) -> None:
    """Muon's weight decay only where the update points the same way as the weight."""

    def fused(w, g, m, lr, momentum, weight_decay, adjust_lr_fn):
        rows, columns = w.shape[1:]
        at_once, scale = max(1, muon.BLOCK // (rows * columns)), lr * muon.scale_of(rows, columns, adjust_lr_fn)
        for start in range(0, len(w.data), at_once):
            wp, gp, mp = (x.data[start : start + at_once] for x in (w, g, m))
            update = np.subtract(gp, mp)
            update *= 1 - momentum
            mp += update
            np.subtract(mp, gp, out=update)
            update *= momentum
            update += gp
            muon.newton_schulz_fused(update)
            wp -= lr * weight_decay * wp * (update * wp > 0)
            wp -= scale * update

    muon.muon.fused["cpu"] = fused


def momentum(run: Run) -> None:
    """Muon's momentum rises from 0.85 to 0.95 in 300 steps, and falls to 0.85 in the last fifth."""

    def before_update(step: int) -> None:
        value = 0.85 + 0.1 * min(1, step / 300)
        if step > 0.8 * run.steps:
            value = 0.95 - 0.1 * (step - 0.8 * run.steps) / (0.2 * run.steps)
        for group in run.optimizer.param_groups:
            group["momentum"] = value

    run.before_update = before_update


# --- the schedule ---------------------------------------------------------------------------------------------


def fall_sqrt(run: Run) -> None:
    """The rate falls as 1 - sqrt(progress) instead of linearly."""
    run.rate = functools.partial(run.fall, shape=lambda p: 1 - math.sqrt(p))


def antiphase(run: Run) -> None:
    """Weight decay rises as the rate falls, so that their product stays constant, up to ten times the decay."""
    decays = [group["weight_decay"] for group in run.optimizer.param_groups]

    def before_update(step: int) -> None:
        rise = min(10.0, run.options.learning_rate / max(run.rate(step), 1e-12))
        for group, decay in zip(run.optimizer.param_groups, decays, strict=True):
            group["weight_decay"] = decay * (rise if step >= run.options.warmup_iters else 1)

    run.before_update = before_update


def dropout_rises(run: Run) -> None:
    """Dropout rises from 0 to 0.1."""
    parts = [part for _, part in run.model.named_modules() if isinstance(part, Dropout)]

    def before_update(step: int) -> None:
        for part in parts:
            part.p = 0.1 * step / run.steps

    run.before_update = before_update


def snapshots(run: Run) -> None:
    """The mean of the weights at ten moments of the last 100 updates."""
    total: dict[str, np.ndarray] = {}

    def before_update(step: int) -> None:
        if step >= run.steps - 100 and step % 10 == 9:
            for name, parameter in run.model.named_parameters():
                total[name] = total.get(name, 0.0) + parameter.data / 10

    def finish() -> None:
        for name, parameter in run.model.named_parameters():
            parameter.data[...] = total[name]

    run.before_update, run.finish = before_update, finish


# --- the data -------------------------------------------------------------------------------------------------


def growing_batch(run: Run) -> None:
    """900 updates of 4 windows, then 960 of 8; the schedule follows the number of windows."""
    plan = [4] * 900 + [8] * 960
    firsts, run.steps = np.cumsum([0, *plan]), len(plan)

    def rate(step: int) -> float:
        seen, warm = firsts[step] / firsts[-1], run.options.warmup_iters / 1500
        return run.options.learning_rate * (min(1, (seen + 1e-4) / warm) if seen < warm else min(1, (1 - seen) / 0.6))

    def batches(step: int) -> Iterator[tuple[tuple[Tensor, ...], float]]:
        data = run.task.data
        arrays = data.windows(data.train, data._next_in_epochs(int(firsts[step]), plan[step]))
        yield tuple(Tensor(array.astype(np.int64)) for array in arrays), 1.0

    run.rate, run.batches = rate, batches


def documents(run: Run) -> None:
    """Windows begin at the beginning of a line, if one is less than 64 tokens before."""
    data, tokenizer = run.task.data, run.task.tokenizer
    ends_line = np.array(["\n" in tokenizer.decode([token]) for token in range(tokenizer.vocab_size)])
    begins, usual = np.flatnonzero(ends_line[data.train]) + 1, data.starts

    def starts(step: int, sequences: int) -> np.ndarray:
        places = usual(step, sequences)
        index = np.searchsorted(begins, places, "right") - 1
        moved = np.where(index >= 0, begins[np.maximum(index, 0)], places)
        return np.minimum(np.where(places - moved < 64, moved, places), len(data.train) - data.apart - 1)

    data.starts = starts


def prefix_targets(run: Run) -> None:
    """A share of the target is the token that is the longest prefix of the true one: 0.2, falling to 0 at half time."""
    tokenizer, size = run.task.tokenizer, run.task.tokenizer.vocab_size
    pieces = [tokenizer.token_bytes(token) for token in range(size)]
    token_of = {piece: token for token, piece in reversed([*enumerate(pieces)])}
    prefixes = [[token_of[p[:n]] for n in range(len(p) - 1, 0, -1) if p[:n] in token_of] for p in pieces]
    prefix = np.array([found[0] if found else token for token, found in enumerate(prefixes)])

    def loss(batch: tuple, step: int) -> Tensor:
        share = 0.2 * max(0.0, 1 - step / (0.5 * run.steps))
        if not share:
            return run.model.loss(batch)
        true = batch[1].data.ravel()
        target, rows = np.zeros((len(true), size), np.float32), np.arange(len(true))
        target[rows, true] = 1 - share
        target[rows, prefix[true]] += share
        return F.cross_entropy(run.model(batch[0]).flatten(0, 1), Tensor(target))

    run.loss = loss


def noise(run: Run) -> None:
    """A twentieth of the input tokens is replaced by random ones; the targets stay."""

    def loss(batch: tuple, step: int) -> Tensor:
        rng, ids = keyed_rng(run.seed, "noise", step), batch[0].data.copy()
        chosen = rng.random(ids.shape) < 0.05
        ids[chosen] = rng.integers(0, run.task.tokenizer.vocab_size, chosen.sum())
        return run.model.loss((Tensor(ids), batch[1]))

    run.loss = loss


def bpe_dropout(run: Run) -> None:
    """In the first eight passes, a twentieth of the merges is left out at random (Provilkov et al. 2020)."""
    ranks = {pair: 256 + number for number, pair in enumerate(run.task.tokenizer.merges)}
    words, size = split_words(run.task.data.corpus.split()[0]), run.options.config.block_size

    def pieces(word: str, rng: random.Random) -> list[int]:
        ids = [*word.encode()]
        while len(ids) > 1:
            best, at = None, -1
            for place in range(len(ids) - 1):
                rank = ranks.get((ids[place], ids[place + 1]))
                if rank is not None and (best is None or rank < best) and rng.random() >= 0.05:
                    best, at = rank, place
            if best is None:
                break
            ids[at : at + 2] = [best]
        return ids

    def windows() -> Iterator[np.ndarray]:
        for epoch in range(1_000_000):
            rng = random.Random(run.seed * 1000 + epoch)
            tokens = np.array([t for word in words for t in pieces(word, rng)] if epoch < 8 else run.task.data.train)
            for start in epoch_starts(run.seed, epoch, len(tokens), size):
                yield tokens[start : start + size + 1]

    flow = windows()

    def batches(_: int) -> Iterator[tuple[tuple[Tensor, ...], float]]:
        rows = np.stack([next(flow) for _ in range(run.options.batch_size)]).astype(np.int64)
        yield (Tensor(rows[:, :-1].copy()), Tensor(rows[:, 1:].copy())), 1.0

    run.batches = batches


# --- the model ------------------------------------------------------------------------------------------------


def along_own(y: Tensor, value: Tensor) -> Tensor:
    """y (B, H, T, D) without its component along the value of its own position, composed of primitives."""
    own = value / ((value * value).sum(-1, keepdim=True) + 1e-6).sqrt()
    return y - (y * own).sum(-1, keepdim=True) * own


def along_own_fused(y: Tensor, value: Tensor) -> Tensor:
    """The same in one node.

    With n = |v|^2, s = y . v / n and z = y - s v:   a = dz . v / n,   dy = dz - a v,   dv = -(s dy + a z)
    """
    squares = np.vecdot(value.data, value.data)[..., None] + value.dtype.type(1e-6)
    along = np.vecdot(y.data, value.data)[..., None] / squares
    z = along * value.data
    np.subtract(y.data, z, out=z)

    def backward(dz: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        other = np.vecdot(dz, value.data)[..., None] / squares
        dy = other * value.data
        np.subtract(dz, dy, out=dy)
        dv = along * dy
        dv += other * z
        return dy, np.negative(dv, out=dv)

    return node(z, (y, value), backward, "along_own")


def exclusive_attention(_: Run, without: Callable[[Tensor, Tensor], Tensor] = along_own) -> None:
    """What a head returns loses its component along the position's own value."""
    attend = MultiHeadAttention.attend

    def without_own(self, query, key, value, *more):
        return without(attend(self, query, key, value, *more), value)

    MultiHeadAttention.attend = without_own


class Experts(Module):
    """Feed-forward parts. Each token passes through one of them, and a bias balances the choice (Wang et al. 2024)."""

    def __init__(self, parts: list[Module], width: int, rng: np.random.Generator) -> None:
        self.parts, self.router = parts, Linear(width, len(parts), bias=False)
        self.router.weight.data[...] = 0.02 * rng.standard_normal(self.router.weight.shape)
        self.balance = np.zeros(len(parts))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        p = self.router(flat).softmax(-1)
        chosen = (p.numpy() + self.balance).argmax(-1)
        counts = np.bincount(chosen, minlength=len(self.parts))
        if self.training:
            self.balance += 0.001 * np.sign(counts.mean() - counts)
        order, ends = np.argsort(chosen, kind="stable"), np.cumsum(counts)
        rows = flat[order]
        found = [self.parts[e](rows[end - n : end]) for e, (n, end) in enumerate(zip(counts, ends, strict=True)) if n]
        gates = p[np.arange(len(chosen)), chosen].reshape(-1, 1)
        return (Tensor.cat(*found, axis=0)[np.argsort(order)] * gates).reshape(*x.shape)


def experts(run: Run, number: int, steps: int) -> None:
    """A mixture of this many experts in each block."""
    config, run.steps = run.options.config, steps
    for layer, block in enumerate(run.model.blocks):
        rng, parts = np.random.default_rng((run.seed, layer)), [block.mlp]
        for _ in range(number - 1):
            parts.append(FeedForward(config.n_embd, 4 * config.n_embd, config.dropout, False, config.activation))
            parts[-1].up.weight.data[...] = 0.02 * rng.standard_normal(parts[-1].up.weight.shape)
            parts[-1].down.weight.data[...] = 0
        block.mlp = Experts(parts, config.n_embd, rng)
    run.optimizer = run.options.make_optimizer(run.model)
    run.rate = functools.partial(run.fall, shape=lambda p: 1 - p)


CHANGES: dict[str, Callable[[Run], None]] = {
    "base": lambda run: None,
    "untied": untied,
    "muon-heads": muon_heads,
    "normuon": normuon,
    "cautious": cautious,
    "momentum": momentum,
    "fall-sqrt": fall_sqrt,
    "antiphase": antiphase,
    "snapshots": snapshots,
    "dropout-rises": dropout_rises,
    "growing-batch": growing_batch,
    "documents": documents,
    "prefix-targets": prefix_targets,
    "noise": noise,
    "bpe-dropout": bpe_dropout,
    "exclusive-attention": exclusive_attention,
    "exclusive-fused": functools.partial(exclusive_attention, without=along_own_fused),
    "4-experts": functools.partial(experts, number=4, steps=1080),
    "8-experts": functools.partial(experts, number=8, steps=907),
}


def costs(names: list[str], turns: int = 60) -> None:
    """How long a step with each change takes, in steps of the default; they take turns in one process."""
    runs, usual = [], patched()
    for name in ("base", *names):
        patch(usual)
        change, *more = name.split()
        runs.append(run := Run(1, [*more, *["--tie_weights", "false"] * (name == "untied")]))
        CHANGES[change](run)
        run.patches = patched()
    times = np.zeros((turns, len(runs)))
    for turn in range(turns):
        for number, run in enumerate(runs):
            patch(run.patches)
            began = time.process_time()
            run.step(turn)
            times[turn, number] = time.process_time() - began
    for name, ratios in zip(names, (times[3:, 1:] / times[3:, :1]).T, strict=True):
        print(name, "{:.3f}: quartiles {:.3f}, {:.3f}".format(*np.quantile(ratios, (0.5, 0.25, 0.75))))


def patched() -> tuple:
    """What some changes replace for all runs."""
    return muon.newton_schulz_fused, muon.muon.fused["cpu"], MultiHeadAttention.attend


def patch(values: tuple) -> None:
    """Put it back."""
    muon.newton_schulz_fused, muon.muon.fused["cpu"], MultiHeadAttention.attend = values


def main(argv: list[str]) -> int:
    """Train, and add a row."""
    np.seterr(all="ignore")
    tune_memory()
    if argv[:1] == ["--costs"]:
        costs(argv[1:])
        return 0
    name, seed, *more = argv
    run = Run(int(seed), [*more, *["--tie_weights", "false"] * (name == "untied")])
    CHANGES[name](run)
    began = time.process_time()
    run.train()
    seconds, size = time.process_time() - began, run.model.num_parameters()
    row = [" ".join([name, *more]), seed, run.steps, size, f"{seconds:.0f}", f"{run.bits():.4f}"]
    with ROWS.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerow(row)
    print(*row)
    return 0


if __name__ == "__main__":
    run_command("screen", main, __doc__)
