"""Does evolution find today's parts? Random settings, of which the best are changed a little, and again.

    python docs/course/14-today/evolve.py ~/.cache/tinygrad_lite/goethe.txt     the text that train.py has fetched
    python docs/course/14-today/evolve.py --runs 48 --max_iters 100             the poem of chapter 4: a minute

A setting is a list of genes: which norm, which positions, how many heads, and so on. Its fitness is the loss on the
held-out quarter of the text after a short training of the model of parts.py. A first population is drawn at random.
Then, again and again, four of the population are drawn, the best of them gets a child in which one gene is drawn again,
and the child takes the place of the oldest. Random search, with as many runs, draws every setting from nothing.

A run's luck is part of its fitness, so the best of many runs is also the luckiest. At the end the winners, GPT-2 and
all parts of parts.py are trained again with other seeds, the last also with the learning rate that evolution chose, and
evolution's winner with one gene of all parts.

References: So et al. 2019, "The Evolved Transformer" (arXiv:1901.11117); Real et al. 2019 (arXiv:1802.01548), where the
oldest die.
"""

import random
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from threadpoolctl import threadpool_limits

from tinygrad_lite.config import option
from training.cli.command_line import read_command
from training.cli.console import run_command

sys.path.insert(0, str(Path(__file__).parents[1]))
import check

parts = check.load(Path(__file__).with_name("parts.py"))

GENES = {
    "norm": ("layernorm", "rmsnorm"),
    "norm_weight": (True, False),
    "positions": ("learned", "sinusoidal", "rotary"),
    "qk_norm": (False, True),
    "activation": ("gelu", "relu", "relu2", "swiglu"),
    "zero_init": (False, True),
    "n_head": (1, 2, 4),
    "muon": (False, True),
    "falls_to_0": (False, True),
    "rate": (1e-3, 2e-3, 4e-3, 8e-3, 16e-3),
}
POPULATION, TOURNAMENT, FRESH = 16, 4, 1000  # FRESH: the first seed of the runs after the search
Setting = dict[str, bool | int | float | str]
Tried = list[tuple[float, Setting]]  # fitness, where lower is better, and what was tried, in order


@dataclass
class EvolveOptions:
    """The options of the search."""

    runs: int = option(80, "runs of each search", low=POPULATION)
    max_iters: int = option(200, "updates of each model", low=1)
    seed: int = option(1, "random seed")
    again: int = option(4, "runs of each winner after the search", low=2)


def drawn(rng: random.Random) -> Setting:
    """A setting whose genes are all random."""
    return {name: rng.choice(values) for name, values in GENES.items()}


def child(parent: Setting, rng: random.Random) -> Setting:
    """A copy with another value of one gene."""
    name = rng.choice([*GENES])
    return parent | {name: rng.choice([value for value in GENES[name] if value != parent[name]])}


def search(fitness: Callable[[Setting, int], float], runs: int, seed: int, evolves: bool) -> Tried:
    """Try settings, the first population of which is the same with and without evolution."""
    rng, tried = random.Random(seed), []
    for number in range(runs):
        if evolves and number >= POPULATION:
            living = tried[-POPULATION:]
            setting = child(min(rng.sample(living, TOURNAMENT), key=lambda one: one[0])[1], rng)
        else:
            setting = drawn(rng)
        tried.append((fitness(setting, seed * runs + number), setting))
    return tried


def described(setting: Setting) -> str:
    """The genes in one line."""
    return ", ".join(f"{name} {value}" for name, value in setting.items())


def main(argv: list[str]) -> int:
    """Search with and without evolution, and compare what was found."""
    about = "Does evolution find today's parts?"
    options, files = read_command(EvolveOptions, argv, "python docs/course/14-today/evolve.py", about, "FILE ...")
    text, ids = parts.numbered(files)

    def fitness(setting: Setting, seed: int) -> float:
        width = {"n_inner": 85} if setting.get("activation") == "swiglu" else {}
        with threadpool_limits(1):
            return parts.bits(setting | width, ids, options.max_iters, seed)[1]

    winners = {"GPT-2": parts.SETTINGS["GPT-2"], "all parts": {}}
    print(f"{len(text):,} characters, {options.max_iters} updates: bits per character on the held-out quarter")
    print("best after      " + "".join(f"{n:8}" for n in range(POPULATION, options.runs + 1, POPULATION)))
    for name, evolves in {"random": False, "evolution": True}.items():
        tried = search(fitness, options.runs, options.seed, evolves)
        steps = range(POPULATION, options.runs + 1, POPULATION)
        print(f"{name:16}" + "".join(f"{min(tried[:n], key=lambda one: one[0])[0]:8.3f}" for n in steps), flush=True)
        last = statistics.mean(found for found, _ in tried[-POPULATION:])
        print(f"  mean of the last {POPULATION} runs: {last:.3f}")
        winners[f"best of {name}"] = best = min(tried, key=lambda one: one[0])[1]
    winners["all parts, that rate"] = {"rate": best["rate"]}
    ours = {**parts.SIZES, "rate": parts.RATE, **parts.PARTS}
    for name in (name for name in GENES if best[name] != ours[name]):  # which of evolution's choices matter?
        winners[f"{name} {ours[name]}"] = best | {name: ours[name]}
    print(f"\ntrained again, {options.again} other seeds")
    for name, setting in winners.items():
        found = [fitness(setting, FRESH + number) for number in range(options.again)]
        again = f"{statistics.mean(found):.3f} ± {statistics.stdev(found):.3f}"
        print(f"{name:20} {again}  {described(setting)}", flush=True)
    return 0


if __name__ == "__main__":
    run_command("evolve", main)
