"""Does a model only copy what it has read? And does it lose its way, the longer it writes?

    python docs/course/10-writing/copied.py out/goethe        after python train.py; a minute

Beginnings of held-out Goethe are continued at several temperatures. Two tables say of these texts, and of how Goethe
himself goes on:

1. which share of their runs of four words, and which run of characters at most, also stand in the training text;
2. how uncertain the model was about the next token, its entropy in bits, on average over ranges of positions.
"""

import re
import sys
from pathlib import Path

import numpy as np

from gpt.model import GPT
from gpt.trained import load_trained
from text.decoding.probabilities import entropy
from text.decoding.sampling import generate
from training.cli.console import run_command
from training.corpora.texts import load_corpus

TEMPERATURES = (0.3, 0.5, 0.8, 1.0, 1.2)
ROWS, PROMPT, LENGTH = 64, 8, 120  # texts, tokens of a beginning, tokens after it
PLACES = ((0, 10), (10, 30), (30, 60), (60, 120))


def four_words(text: str) -> list[tuple[str, ...]]:
    """All runs of four words of a text, without punctuation."""
    words = re.findall(r"\w+", text)
    return list(zip(*(words[n:] for n in range(4)), strict=False))


def longest_copy(text: str, source: str) -> str:
    """The longest piece of a text that also stands in a source."""
    best, start = "", 0
    for end in range(1, len(text) + 1):
        while text[start:end] not in source:
            start += 1
        if end - start > len(best):
            best = text[start:end]
    return best


def continued(
    model: GPT, prompts: np.ndarray, temperature: float, length: int, given: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """How the model continues prompts (B, n): tokens and entropies before each of them, both (B, length).

    Args:
        given: (B, length), tokens to read in place of those that it would write.
    """
    log_probs, state = model.start(prompts)
    seen = [entropy(log_probs)]

    def step(tokens, state):
        log_probs, state = model.step(tokens, state)
        seen.append(entropy(log_probs))
        return log_probs, state

    if given is None:
        settings = {"max_new_tokens": length, "temperature": temperature}
        written = np.stack(list(generate(step, log_probs, state, **settings)), axis=1)
        return written, np.stack(seen, axis=1)
    for tokens in given[:, :-1].T:
        _, state = step(tokens, state)
    return given, np.stack(seen, axis=1)


def main(argv: list[str]) -> int:
    """Print the two tables for the checkpoint or run that the command line names."""
    trained = load_trained(Path(argv[0] if argv else "out/goethe"))
    model, tokenizer = trained.make_model(), trained.tokenizer
    source, held_out = load_corpus("goethe").split()
    known = set(four_words(source))
    tokens = np.array(tokenizer.encode(held_out))
    starts = np.linspace(0, len(tokens) - PROMPT - LENGTH, ROWS, dtype=int)
    rows = tokens[starts[:, None] + np.arange(PROMPT + LENGTH)]
    prompts, goethe = rows[:, :PROMPT], rows[:, PROMPT:]
    print("              four words   longest copy")
    entropies = {}
    for name in ("Goethe", *TEMPERATURES):
        given, temperature = (goethe, 1.0) if name == "Goethe" else (None, name)
        written, entropies[name] = continued(model, prompts, temperature, LENGTH, given)
        texts = [tokenizer.decode(row.tolist()) for row in written]
        runs = [run for text in texts for run in four_words(text)]
        share = sum(run in known for run in runs) / max(1, len(runs))
        best = max((longest_copy(text, source) for text in texts), key=len)
        print(f"{name:<12}{share:11.1%}{len(best):9}   {best!r}", flush=True)
    print("\nentropy, bits" + "".join(f"{f'{low + 1}-{high}':>10}" for low, high in PLACES))
    for name, found in entropies.items():
        print(f"{name:<13}" + "".join(f"{found[:, low:high].mean():10.2f}" for low, high in PLACES))
    return 0


if __name__ == "__main__":
    run_command(Path(sys.argv[0]).name, main, __doc__)
