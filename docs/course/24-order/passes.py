"""A small text, read many times: when does each model begin to learn it by heart?

    python docs/course/24-order/passes.py --tokens 32768 --passes 256

Each preset learns from the first tokens of its training text, again and again, at a constant learning rate, and
predicts the whole held-out text after 1, 2, 4, ... passes. A GPT meets the same questions in every pass: what follows
this beginning? For masked diffusion they are new each time, because other tokens are hidden. So it should take longer
to learn the answers by heart (Prabhudesai et al. 2025, arXiv:2507.15857; Ni et al. 2025, arXiv:2511.03276).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from extra.families import DIFFUSION, FAMILIES, GPT
from extra.studies.program import program
from gpt.data import bits_per_character
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from train import evaluate, only_updates
from training.cli.console import run_command, show
from training.processes.processes import OneProcess
from training.start import read_setup

FIXED = "--decay_lr false --eval_iters 0 --workers 1".split()


@dataclass
class PassesOptions:
    """What is trained, and how long."""

    models: str = option("goethe,diffusion", "presets")
    tokens: int = option(8192, "tokens to learn from", unit="tokens", low=1024)
    passes: int = option(32, "passes over them, at most", low=1)
    seed: int = option(1337, "draws the weights, and the order of the windows", low=0)


@program("docs/course/24-order/passes.py", PassesOptions)
def main(options: PassesOptions) -> None:
    """Learn a small text in many passes, and predict another one."""
    for name in options.models.split(","):
        for passes, bits, seconds in learned(options, name):
            show(f"{name:10} {passes:5} passes: {bits:.4f} bits per character, {seconds:.0f} s of processor time")


def learned(options: PassesOptions, name: str) -> Iterator[tuple[int, float, float]]:
    """Train a preset; after 1, 2, 4, ... passes, the held-out bits per character and the processor time so far."""
    setup = read_setup([name, *FIXED, "--seed", str(options.seed)], FAMILIES)
    if setup.family not in (GPT, DIFFUSION):
        raise OptionError(f"--models {name}: the models that are compared are GPTs and masked diffusion")
    task, comm = setup.make_task(), OneProcess()
    task.data.train = task.data.train[: options.tokens]
    model, began, passes = setup.make_model(task.tokenizer), time.process_time(), 1
    optimizer = setup.options.make_optimizer(model)
    while passes <= options.passes:
        setup.options.max_iters = passes * options.tokens // task.target_tokens(0)
        only_updates(setup.options, task, model, optimizer, comm)
        bits = bits_per_character(evaluate(task, model, comm), task.data.chars_per_token)
        yield passes, bits, time.process_time() - began
        passes *= 2


if __name__ == "__main__":
    run_command("passes", main)
