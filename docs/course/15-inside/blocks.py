"""What is each block of a GPT worth? Its two branches are switched off, and the residual connection passes by.

    python docs/course/15-inside/blocks.py out/goethe

The loss is measured on the first 20,000 characters of held-out text.
"""

import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from extra.gpt.trained import load_trained
from extra.studies.program import NoOptions, program
from gpt.model import GPT
from gpt.score import score
from training.cli.console import run_command
from training.corpora.texts import load_corpus

CHARACTERS = 20_000


def remove(model: GPT, blocks: Collection[int]) -> GPT:
    """Let these blocks add nothing to the stream."""
    for number in blocks:
        for last in (model.blocks[number].mixer.output, model.blocks[number].mlp.down):
            for parameter in last.parameters():
                parameter.data[...] = 0
    return model


@program("docs/course/15-inside/blocks.py", NoOptions, "CHECKPOINT")
def main(_: NoOptions, name: str = "out/goethe") -> None:
    """Print the bits per character without each block, and without all up to it."""
    trained = load_trained(Path(name))
    goethe = load_corpus("goethe")
    corpus = replace(goethe, text=goethe.split()[1][:CHARACTERS])

    def bits(blocks: Collection[int]) -> float:
        return score(remove(trained.make_model(), blocks), trained.tokenizer, corpus).bits_per_character

    print(f"{bits(()):.3f} bits per character with all blocks\n\n| block | without it | without it and all below |")
    print("|---|---|---|")
    for number in range(trained.config.n_layer):
        print(f"| {number + 1} | {bits({number}):.3f} | {bits(range(number + 1)):.3f} |", flush=True)


if __name__ == "__main__":
    run_command(Path(sys.argv[0]).name, main)
