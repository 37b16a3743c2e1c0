"""What each part of today's models is worth to a very small GPT: the tables of chapter 14.

    python docs/course/14-today/parts.py                                        which learns the poem of chapter 4
    python docs/course/14-today/parts.py ~/.cache/tinygrad_lite/goethe.txt      or the text that train.py has fetched

The first row has all parts; in every other row one is replaced, and in the last all. Bits per character on 200 windows
of what was learned, and on 200 from the last quarter of the text, which is held out; mean ± deviation over the seeds.
≈ marks a difference from the first row of at most two standard errors.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from extra.gpt.config import GPTConfig
from gpt.model import GPT
from tinygrad_lite import Tensor, manual_seed, no_grad, optim
from tinygrad_lite.config import option
from tinygrad_lite.errors import UserError
from training.cli.command_line import read_command
from training.cli.console import run_command
from training.corpora.texts import load_files

sys.path.insert(0, str(Path(__file__).parents[1]))
import check

SIZES = {"block_size": 32, "n_layer": 2, "n_head": 2, "n_embd": 32}
LENGTH, ROWS, EVALUATED, RATE, WARMUP = SIZES["block_size"] + 1, 8, 200, 4e-3, 10
PARTS = {"norm": "rmsnorm", "norm_weight": False, "positions": "rotary", "qk_norm": True, "activation": "relu2"}
PARTS |= {"zero_init": True, "muon": True, "falls_to_0": True}
GPT2 = {
    "layer norm": {"norm": "layernorm", "norm_weight": True},
    "learned positions": {"positions": "learned"},
    "no norm of queries, keys": {"qk_norm": False},
    "GELU": {"activation": "gelu"},
    "projections not 0": {"zero_init": False},
    "AdamW": {"muon": False},
    "cosine to a tenth": {"falls_to_0": False},
}
OTHERS = {"RMS norm with a gain": {"norm_weight": True}, "SwiGLU": {"activation": "swiglu", "n_inner": 85}}
SETTINGS = {"all parts": {}, **GPT2, **OTHERS, "one head of keys, values": {"n_kv_head": 1}}
SETTINGS["GPT-2"] = {name: value for change in GPT2.values() for name, value in change.items()}


@dataclass
class PartsOptions:
    """The options of the comparison."""

    max_iters: int = option(200, "updates of each model", low=1)
    seeds: int = option(3, "runs of each setting", low=2)


def loss(model: GPT, ids: np.ndarray, starts: np.ndarray) -> Tensor:
    """The loss on the windows of a text that begin at `starts`, in nats per character."""
    windows = ids[starts[:, None] + np.arange(LENGTH)]
    return model.loss((Tensor(windows[:, :-1]), Tensor(windows[:, 1:])))


def bits(change: dict, ids: np.ndarray, max_iters: int, seed: int) -> list[float]:
    """Train a model on three quarters of a text. Returns: its bits per character there, and on the rest."""
    parts, (known, held_out) = PARTS | change, np.split(ids, [len(ids) * 3 // 4])
    muon, falls_to_0, rate = parts.pop("muon"), parts.pop("falls_to_0"), parts.pop("rate", RATE)
    manual_seed(seed)
    model = GPT(GPTConfig(vocab_size=int(ids.max()) + 1, **SIZES | parts))
    groups = (optim.muon_groups if muon else optim.decay_groups)(model, 0.1)
    optimizer = optim.Muon(groups, muon_lr_factor=5) if muon else optim.AdamW(groups)
    schedule = (optim.trapezoid, 0.0, 0.4) if falls_to_0 else (optim.cosine, rate / 10)
    for step in range(max_iters):
        optimizer.zero_grad()
        loss(model, known, np.random.default_rng((seed, step)).integers(0, len(known) - LENGTH, ROWS)).backward()
        optimizer.clip_grad_norm(1.0)
        optimizer.lr = schedule[0](step, rate, WARMUP, max_iters, *schedule[1:])
        optimizer.step()
    with no_grad():
        evenly = [np.linspace(0, len(text) - LENGTH, EVALUATED).astype(int) for text in (known, held_out)]
        return [loss(model, *pair).item() / math.log(2) for pair in zip((known, held_out), evenly, strict=True)]


def numbered(files: list[str]) -> tuple[str, np.ndarray]:
    """The text of the files, or the poem of chapter 4, and its characters as numbers.

    Raises: UserError if it is too short.
    """
    poem = check.load(check.chapters()[4] / "letters.py")
    text = load_files(files).text if files else poem.TRAIN + poem.HELD_OUT
    if len(text) < (enough := 4 * (LENGTH + 1)):
        raise UserError(f"the text has {len(text)} characters, and {enough} are needed")
    return text, np.unique(list(text), return_inverse=True)[1]


def main(argv: list[str]) -> int:
    """Print a row for each setting."""
    about = "What each part of today's models is worth to a very small GPT."
    options, files = read_command(PartsOptions, argv, "python docs/course/14-today/parts.py", about, "FILE ...")
    text, ids = numbered(files)
    print(
        f"{len(text):,} characters, {options.max_iters} updates: bits per character\n{'':26}learned          held out"
    )
    rows = {}
    for name, change in SETTINGS.items():
        with threadpool_limits(1):  # more threads only wait for each other in products of this size
            runs = [bits(change, ids, options.max_iters, seed) for seed in range(1, options.seeds + 1)]
        rows[name] = [(np.mean(column), np.std(column, ddof=1)) for column in zip(*runs, strict=True)]
        line = f"{name:24}"
        for (mean, s), (first, t) in zip(rows[name], rows["all parts"], strict=True):
            is_same = change and abs(mean - first) <= 2 * math.sqrt((s**2 + t**2) / options.seeds)
            line += f"  {mean:.3f} ± {s:.3f}{' ≈' if is_same else '  '}"
        print(line.rstrip(), flush=True)
    return 0


if __name__ == "__main__":
    run_command("parts", main)
