"""More text or not: models with the same number of steps, on an eighth, a quarter, half and all of Goethe's works.

    python docs/extra/amount.py
    python docs/extra/amount.py --shares 8 --seed 2

A share of 8 is every eighth piece of about 10,000 characters, so that each share has something of every work. It is
written to out/amount, and `train.py --text` learns from it with the settings of the preset `goethe` (without dropout).
Since that holds out the last tenth of a file, so much of the two works that `goethe-works` holds out is added. What is
measured is the same for all: these two works as a whole.
"""

from dataclasses import dataclass
from pathlib import Path

import extra.corpora.texts  # noqa: F401 (so that its texts are known)
import train
from extra.families import GPT
from extra.studies.program import numbers, program, write_lines
from gpt.score import score
from tinygrad_lite.config import option
from tinygrad_lite.errors import UserError
from training.cli.console import run_command, show
from training.corpora.texts import Corpus, load_corpus
from training.folder import RunFolder

FOLDER, PIECE = Path("out/amount"), 10_000


@dataclass
class AmountOptions:
    """The options of the experiment."""

    shares: str = option("8,4,2,1", "learn from every n-th piece of the text: numbers with commas between them")
    max_iters: int = option(1500, "updates of each model", low=1)
    characters: int = option(0, "predict only the first N characters; 0: all", unit="characters", low=0)
    seed: int = option(1, "of the weights and the order")


def pieces(text: str, length: int = PIECE) -> list[str]:
    r"""Paragraphs, joined to pieces of at least this length; the last may be shorter.

    >>> pieces("ab\n\ncd\n\nef", 3)
    ['ab\n\ncd', 'ef']
    """
    found, piece = [], ""
    for paragraph in text.split("\n\n"):
        piece = f"{piece}\n\n{paragraph}" if piece else paragraph
        if len(piece) >= length:
            found.append(piece)
            piece = ""
    return [*found, piece] if piece else found


@program("docs/extra/amount.py", AmountOptions)
def main(options: AmountOptions) -> None:
    """Train a model on each share of Goethe's works."""
    what = "whole numbers from 1 on, such as 8,1"
    shares = numbers(options.shares, "--shares", what, lambda n: n >= 1 and n.is_integer())
    learned, held_out = load_corpus("goethe-works").split()
    judge = Corpus("held out", held_out[: options.characters or None], "goethe-works", "", "")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for n in map(int, shares):
        text, folder = FOLDER / f"{n}.txt", FOLDER / f"{n}-{options.seed}"
        share = "\n\n".join(pieces(learned)[::n])
        write_lines(text, [f"{share}\n\n{held_out[: len(share) // 9]}"])
        words = f"goethe --dropout 0 --workers 1 --sample_tokens 0 --overwrite --text {text} --out_dir {folder}"
        words += f" --max_iters {options.max_iters} --eval_interval {options.max_iters} --seed {options.seed}"
        if status := train.main(words.split()):
            raise UserError(f"the training of {folder} ended with status {status}")
        trained = GPT.read(RunFolder(folder).last)
        found = score(trained.make_model(), trained.tokenizer, judge)
        show(f"1/{n}, {len(share):,} characters: {found.bits_per_character:.3f} bits per character")


if __name__ == "__main__":
    run_command("amount", main)
