"""What each head of a GPT looks at, and what it is worth: the table of chapter 15.

    python docs/course/15-inside/heads.py out/goethe

Attention is averaged over 20 windows of held-out text; the loss is measured on its first 20,000 characters.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from without import without_heads

from extra.gpt.trained import load_trained
from extra.inside.gpt import look_inside
from extra.studies.program import NoOptions, program
from gpt.score import score
from training.cli.console import run_command
from training.corpora.texts import load_corpus

CHARACTERS, WINDOWS = 20_000, 20
COLUMNS = ("layer, head", "itself", "one before", "after the same", "lost")


@program("docs/course/15-inside/heads.py", NoOptions, "CHECKPOINT")
def main(_: NoOptions, name: str = "out/goethe") -> None:
    """Print the table for the checkpoint or run that the command line names."""
    trained = load_trained(Path(name))
    model, tokenizer, length = trained.make_model(), trained.tokenizer, trained.config.block_size
    goethe = load_corpus("goethe")
    corpus = replace(goethe, text=goethe.split()[1][:CHARACTERS])
    tokens, here = np.array(tokenizer.encode(corpus.text)), np.arange(length)
    weights = np.zeros((3, trained.config.n_layer, trained.config.n_head))
    for start in range(0, WINDOWS * length, length):
        window = tokens[start : start + length]
        attention = look_inside(model, window.tolist()).attention
        # At [t, s]: whether the token at t also comes just before s, so that s shows how the text continued then.
        follows = np.tril(np.equal.outer(window, np.roll(window, 1)))
        follows[:, 0] = False
        weights[0] += attention[:, :, here, here].mean(-1)
        weights[1] += attention[:, :, here[1:], here[:-1]].mean(-1)
        weights[2] += (attention * follows).sum(-1)[:, :, follows.any(-1)].mean(-1)
    whole = score(model, tokenizer, corpus).bits_per_character
    print(f"{whole:.3f} bits per character with all heads\n")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for layer, head in np.ndindex(weights[0].shape):
        with without_heads(model, [(layer, head)]):
            lost = score(model, tokenizer, corpus).bits_per_character - whole
        shares = " | ".join(f"{weight / WINDOWS:.2f}" for weight in weights[:, layer, head])
        print(f"| {layer + 1}, {head + 1} | {shares} | {lost:.3f} |", flush=True)


if __name__ == "__main__":
    run_command(Path(sys.argv[0]).name, main)
