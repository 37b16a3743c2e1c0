"""`sample.py` with an encoder for text: hidden words, the label of a text, or the lines that are most similar to it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from encoder.bert import Bert, mean_of_text
from encoder.data import MASK, PAD
from encoder.labels import sequence, texts_of
from encoder.words import guesses
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.cli.console import shown
from tinygrad_lite.cli.errors import OptionError
from tinygrad_lite.corpora.cleaning import normalise
from tinygrad_lite.corpora.texts import load_files
from tinygrad_lite.decoding.state import pad_rows
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.tokenizers.base import Tokenizer

KNOWN = {*"start similar explain answers out_dir device quantize adapter dtype".split()}
BATCH = 32  # lines that are read at once


def check_options(options: Any, given: Collection[str], model: Bert) -> None:
    """Check that the options apply to this encoder.

    Raises: OptionError if not.
    """
    if unused := [name for name in given if name not in KNOWN]:
        takes = ", ".join(f"--{name}" for name in sorted(KNOWN))
        raise OptionError(f"--{unused[0]} is for models that write; an encoder reads, and takes {takes}")
    if "start" not in given:
        raise OptionError('give a text: --start "Der [MASK] ist ein Künstler.", or --start - for stdin')
    if not (options.similar or options.explain) and model.config.objective == "features":
        raise OptionError("these weights give features only: add --similar FILE, whose lines are compared with --start")


def read(options: Any, model: Bert, tokenizer: Tokenizer, text: str) -> None:
    """Answer for each line of a text."""
    lines = text.removesuffix("\n").split("\n")
    if options.similar:
        found = load_files([options.similar]).text.splitlines()
        show_similar(model, tokenizer, lines, [line for line in found if line.strip()], options.answers)
    elif model.config.objective == "labels":
        show_labels(model, tokenizer, lines)
    else:
        show_words(model, tokenizer, lines, options.answers)


def show_words(model: Bert, tokenizer: Tokenizer, lines: Sequence[str], most: int) -> None:
    """Print each line, and the most probable words for each [MASK] in it."""
    for line in lines:
        if MASK not in line:
            raise OptionError(f"there is no {MASK} in {line[:60]!r}: write it where a word is to be guessed")
        write("\n".join(guesses(model, tokenizer, line, most)))


def show_labels(model: Bert, tokenizer: Tokenizer, lines: Sequence[str]) -> None:
    """Print the label of each line, which has a text or a pair of texts, and the probabilities of all."""
    for line in lines:
        ids, segments = sequence(tokenizer, texts_of(line, model.config.segments), model.config.block_size)
        with no_grad():
            logits = model.label_logits(
                *(Tensor(array[None], dtype=np.int64, device=model.device) for array in (ids, segments))
            )
        probabilities = logits.softmax().numpy()[0]
        order = np.argsort(-probabilities, kind="stable")
        names = model.config.label_names
        listed = ", ".join(f"{names[n]} {probabilities[n]:.1%}" for n in order)
        write(f"{names[order[0]]}\t{listed}")


def show_similar(model: Bert, tokenizer: Tokenizer, lines: Sequence[str], others: Sequence[str], most: int) -> None:
    """Print for each line the most similar of the others, with the cosine of the angle between them."""
    if not others:
        raise OptionError("--similar names a file without any text")
    table = sentence_embeddings(model, tokenizer, others)
    for line, vector in zip(lines, sentence_embeddings(model, tokenizer, lines), strict=True):
        cosines = table @ vector
        write(line)
        for number in np.argsort(-cosines, kind="stable")[:most]:
            write(f"  {cosines[number]:.3f}  {others[number]}")


def sentence_embeddings(model: Bert, tokenizer: Tokenizer, texts: Sequence[str]) -> np.ndarray:
    """A vector of length 1 for each text: the mean of its tokens' vectors, so that a product of two is a cosine.

    Reference: Reimers, Gurevych 2019 (arXiv:1908.10084), section 3, pooling by the mean.
    """
    size, pad = model.config.block_size, tokenizer.specials[PAD]
    rows = [sequence(tokenizer, [text], size)[0] for text in texts]
    order = np.argsort([len(row) for row in rows], kind="stable")  # little padding
    vectors = np.empty((len(rows), model.config.n_embd), np.float32)
    for first in range(0, len(rows), BATCH):
        part = order[first : first + BATCH]
        ids = Tensor(pad_rows([rows[number] for number in part], pad), device=model.device)
        with no_grad():
            mean = mean_of_text(model(ids), ids, pad)
            vectors[part] = (mean / (mean * mean).sum(axis=1, keepdim=True).sqrt()).numpy()
    return vectors


def write(line: str) -> None:
    """Print a line immediately."""
    sys.stdout.write(shown(normalise(line)).rstrip("\n") + "\n")
    sys.stdout.flush()
