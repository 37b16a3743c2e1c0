"""Measure how well a GPT answers: held-out texts are translated or summarised, and the answers scored.

    python -m studies.answers out/gpt-translate                          the run's own held-out pairs: BLEU and chrF
    python -m studies.answers out/gpt-translate --beam 5                 with a beam search
    python -m studies.answers out/gpt-translate --pairs test.tsv         other pairs: source TAB target in each line
    python -m studies.answers out/gpt-summarize --rouge true             summaries: ROUGE, next to two simple ones
    python -m studies.answers out/gpt-summarize --out written.txt        save the answers, one per line

The simple summaries, which a model must beat, are the first sentence of the text and its first eight words.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpt.answering import answer, separator_of
from gpt.family import FAMILY
from gpt.pairs import load_pairs, positions
from studies.program import program
from tinygrad_lite.errors import CheckpointError, CorpusError, counted
from workshop.cli.console import run_command, say
from workshop.cli.options import option
from workshop.corpora.divided_pairs import read_table, without_empty, write_lines
from workshop.corpora.pair_cleaning import SENTENCE_END
from workshop.decoding.sample_options import LENGTH_PENALTY
from workshop.decoding.scores import mean_with_interval, metrics, rouge, scores_with_confidence
from workshop.run.origin import options_of_run
from workshop.run.pair_data import encode_pairs
from workshop.run.run_folder import tune_memory

FIRST_WORDS = 8


@dataclass
class AnswerOptions:
    """The options of the evaluation."""

    beam: int = option(1, "hypotheses of the search; 1: greedy", unit="hypotheses", low=1, high=1000)
    length_penalty: float = option(
        LENGTH_PENALTY, "exponent that favours longer hypotheses; 0: no penalty", low=0.0, high=10.0
    )
    rouge: bool = option(False, "score summaries by ROUGE, instead of BLEU and chrF")
    pairs: str = option("", "file to answer instead: source TAB target in each line", is_path=True)
    max_pairs: int = option(0, "the first N pairs only; 0: all", unit="pairs", low=0)
    out: str = option("", "file for the answers", is_path=True)
    device: str = option("cpu", "where to compute", choices=("cpu", "cuda", "auto"))


@program("studies.answers", AnswerOptions, "CHECKPOINT", "out/gpt-translate")
def main(options: AnswerOptions, name: str) -> None:
    """Let a GPT answer held-out texts, and score the answers."""
    tune_memory()
    trained = FAMILY.read(Path(name))
    tokenizer = trained.tokenizer
    if not (separator := separator_of(tokenizer)):
        raise CheckpointError(f"{trained.path} continues texts; this measures models that learned from pairs")
    say(trained.about)
    if options.pairs:
        pairs = without_empty(read_table(Path(options.pairs)))[0]
    else:
        held_out = load_pairs(options_of_run(FAMILY, trained.adapter or trained.path)).held_out
        tokens = encode_pairs(tokenizer, held_out, separator, separator)
        room = trained.config.block_size
        pairs = [pair for pair, ids in zip(held_out, tokens, strict=True) if positions(ids) <= room]
    pairs = pairs[: options.max_pairs or None]
    if not pairs:
        raise CorpusError("there are no pairs to answer")
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    _ = rouge(targets[:1], targets[:1]) if options.rouge else metrics()  # fails at once if it is not installed
    model = trained.make_model(options.device)
    began = time.perf_counter()
    written = answer(model, tokenizer, sources, options.beam, options.length_penalty)
    seconds = time.perf_counter() - began
    searched = f"beam {options.beam}, length penalty {options.length_penalty:g}"
    say(f"{counted(len(pairs), 'answer')} in {seconds:.1f} s, {searched}")
    if options.out:
        write_lines(Path(options.out), written)
    exact = np.mean([one == right for one, right in zip(written, targets, strict=True)])
    table = rouge_table(sources, targets, written) if options.rouge else scores_with_confidence(written, targets)
    print(f"exactly right: {exact:.1%}", *table, sep="\n")


def rouge_table(sources: Sequence[str], targets: Sequence[str], written: Sequence[str]) -> list[str]:
    """Lines with the mean ROUGE of the model's summaries and of the simple ones, each with its 95 % interval."""
    summaries = {
        "the model": written,
        "the first sentence": [SENTENCE_END.split(source)[0] for source in sources],
        f"the first {FIRST_WORDS} words": [" ".join(source.split()[:FIRST_WORDS]) for source in sources],
    }
    found = {name: rouge(texts, targets) for name, texts in summaries.items()}
    lines = [f"{'':20}" + "".join(f"{name:>14}" for name in found["the model"])]
    for name, measures in found.items():
        lines.append(f"{name:20}" + "".join(f"{mean_with_interval(values):>14}" for values in measures.values()))
    return lines


if __name__ == "__main__":
    run_command("studies.answers", main)
