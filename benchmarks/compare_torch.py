"""Train our GPT and its PyTorch twin from the same weights on the same batches, and compare losses and times.

    python -m benchmarks.compare_torch                      the default recipe, 2,000 steps
    python -m benchmarks.compare_torch --max_iters 200      the first 200 of them

Each side runs in a process of its own, as its user would run it: ours with the memory settings that train.py makes,
PyTorch with as many threads as there are cores and the system's malloc. The two take turns, 50 steps each, and the
one that waits sleeps; so a busy moment of the machine hits both, and the ratio of the medians means something.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

from gpt.config import GPTOptions
from gpt.data import prepare
from gpt.model import GPT
from tinygrad_lite.device import random_key
from tinygrad_lite.errors import UserError
from tinygrad_lite.options import build, option, parse_command_line

TURN = 50  # steps


@dataclass
class CompareOptions(GPTOptions):
    """The options of train.py, and which side a child process is."""

    threads: int = option(os.cpu_count() or 1, "threads for PyTorch", low=1, group="comparison")
    side: str = option("", "for the child processes: ours or torch", group="comparison", hidden=True)


def main(argv: list[str]) -> int:
    """Run both sides in turns and print the comparison."""
    parsed = parse_command_line(
        CompareOptions, argv, prog="python -m benchmarks.compare_torch", description=__doc__.split("\n")[0]
    )
    options = build(CompareOptions, ("command line", parsed.values))
    if options.side:
        return serve(options)
    sides = {name: start(name, argv) for name in ("ours", "torch")}
    losses: dict[str, list[float]] = {name: [] for name in sides}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for begin in range(0, options.max_iters, TURN):
        for name, process in sides.items():
            answer = ask(process, {"from": begin, "to": min(begin + TURN, options.max_iters)})
            losses[name] += answer["losses"]
            times[name] += answer["seconds"]
        print(f"step {len(losses['ours']):,} of {options.max_iters:,}", file=sys.stderr)
    final = {name: ask(process, {"evaluate": True})["loss"] for name, process in sides.items()}
    for process in sides.values():
        process.stdin.close()
        process.wait()

    apart = [abs(a - b) for a, b in zip(losses["ours"], losses["torch"], strict=True)]
    medians = {name: statistics.median(seconds) * 1e3 for name, seconds in times.items()}
    ratio = medians["torch"] / medians["ours"]
    machine = platform.processor() or platform.machine()
    print(f"{machine}, {os.cpu_count()} cores, Python {platform.python_version()}; torch threads: {options.threads}")
    print(f"{options.n_layer} layers, {options.n_embd} wide, context {options.block_size}, batch {options.batch_size}")
    print(f"{options.max_iters:,} steps; {'ours':>30}{'torch':>12}")
    print(f"{'validation loss, nats':30}{final['ours']:12.5f}{final['torch']:12.5f}", end="")
    print(f"   difference {final['ours'] - final['torch']:+.5f}")
    print(f"{'median step, ms':30}{medians['ours']:12.1f}{medians['torch']:12.1f}   torch / ours {ratio:.2f}")
    print(f"largest difference of the training losses: first 200 steps {max(apart[:200]):.2g}, all {max(apart):.2g}")
    return 0


def start(side: str, argv: list[str]) -> subprocess.Popen:
    """A child process for one side; it answers one JSON line for each JSON line."""
    command = [sys.executable, "-m", "benchmarks.compare_torch", *argv, "--side", side]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")


def ask(process: subprocess.Popen, question: dict) -> dict:
    """Put one question to a side and wait for the answer."""
    process.stdin.write(json.dumps(question) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise UserError("one side ended before its time; its message stands above")
    return json.loads(line)


def serve(options: CompareOptions) -> int:
    """One side: make the model, then train and evaluate as asked until stdin ends."""
    data = prepare(options)
    with random_key(options.seed):
        model = GPT(options.model_config(data.tokenizer.vocab_size))
    make = our_side if options.side == "ours" else torch_side
    update, evaluate = make(options, model)
    for line in sys.stdin:
        question = json.loads(line)
        answer = {"losses": [], "seconds": []}
        for step in range(question.get("from", 0), question.get("to", 0)):
            (batch,) = data.micro_batches(step, options.batch_size, 1)
            began = time.perf_counter()
            answer["losses"].append(update(batch, options.learning_rate_at(step)))
            answer["seconds"].append(time.perf_counter() - began)
        if "evaluate" in question:
            batches = data.validation_batches(options.batch_size, options.eval_iters)
            parts = [(evaluate(batch), batch[1].numel()) for batch in batches]
            answer["loss"] = sum(loss * n for loss, n in parts) / sum(n for _, n in parts)
        print(json.dumps(answer), flush=True)
    return 0


def our_side(options: CompareOptions, model: GPT):
    """Functions that make one update and evaluate one batch, with our engine."""
    from tinygrad_lite.run import tune_memory
    from tinygrad_lite.tensor import no_grad

    tune_memory()
    optimizer = options.make_optimizer(model)

    def update(batch, lr: float) -> float:
        optimizer.lr = lr
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        optimizer.clip_grad_norm(options.grad_clip)
        optimizer.step()
        return loss.item()

    def evaluate(batch) -> float:
        model.eval()
        with no_grad():
            loss = model.loss(batch).item()
        model.train()
        return loss

    return update, evaluate


def torch_side(options: CompareOptions, model: GPT):
    """The same with PyTorch."""
    import torch

    from benchmarks.torch_gpt import from_ours

    torch.set_num_threads(options.threads)
    twin = from_ours(model)
    optimizer = twin.make_optimizer(options.learning_rate, (options.beta1, options.beta2), options.weight_decay)

    def update(batch, lr: float) -> float:
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.zero_grad()
        loss = twin.loss(*(torch.tensor(part.numpy()) for part in batch))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), options.grad_clip)
        optimizer.step()
        return loss.item()

    def evaluate(batch) -> float:
        twin.eval()
        with torch.no_grad():
            loss = twin.loss(*(torch.tensor(part.numpy()) for part in batch)).item()
        twin.train()
        return loss

    return update, evaluate


def run() -> None:
    """Call `main` and print what a user can mend as one sentence."""
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"compare_torch: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    run()
