"""Measure how well a model translates: held-out sentences are translated, and scored with sacrebleu.

    python -m studies.scores out/translate-de-en                       the run's own held-out pairs
    python -m studies.scores out/translate-de-en --beam 1              greedily
    python -m studies.scores out/translate-de-en --pairs test.tsv      other pairs: source TAB target in each line
    python -m studies.scores out/translate-de-en --src a.de --tgt a.en
    python -m studies.scores out/translate-de-en --out written.txt     save the translations, one per line
    python -m studies.scores out/translate-de-en --compare 0,0.6,1     which length penalty is best?

The held-out pairs are those of the training run, found by the settings in the checkpoint; the paths of the run's files
are in the options.json next to it. The scores, with confidence intervals and sacrebleu's signatures, go to stdout.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from seq2seq.corpus import load_pairs
from seq2seq.task import FAMILY
from seq2seq.translate import penalty_of, translate
from studies.program import numbers, program
from tinygrad_lite.errors import CorpusError, OptionError, counted
from workshop.cli.console import run_command, say
from workshop.cli.options import option
from workshop.corpora.divided_pairs import read_table, read_two, without_empty, write_lines
from workshop.corpora.pair_cleaning import Pair
from workshop.decoding.scores import scores, scores_with_brevity, scores_with_confidence
from workshop.run.origin import options_of_run
from workshop.run.run_folder import tune_memory


@dataclasses.dataclass
class EvaluateOptions:
    """The options of the evaluation."""

    beam: int = option(5, "hypotheses of the search; 1: greedy", unit="hypotheses", low=1, high=1000)
    length_penalty: float | None = option(
        None, "exponent that favours longer hypotheses; 0: no penalty; none: that of the run", low=0.0, high=10.0
    )
    compare: str = option("", "length penalties to compare, such as 0,0.6,1: a row of scores for each, then the best")
    pairs: str = option("", "file to translate instead: source TAB target in each line", is_path=True)
    src: str = option("", "file to translate instead: a source sentence in each line", is_path=True)
    tgt: str = option("", "its reference translations, line by line", is_path=True)
    swap: bool = option(False, "the files have the target first")
    max_pairs: int = option(0, "evaluate the first N pairs only; 0: all", unit="pairs", low=0)
    out: str = option("", "file for the translations", is_path=True)
    device: str = option("cpu", "where to compute", choices=("cpu", "cuda", "auto"))


@program("studies.scores", EvaluateOptions, "CHECKPOINT", "out/translate-de-en")
def main(options: EvaluateOptions, name: str) -> None:
    """Translate held-out sentences and score the translations."""
    tune_memory()
    penalties = penalties_to_compare(options)
    trained = FAMILY.read(Path(name))
    say(trained.about)
    pairs = pairs_to_translate(options, trained.adapter or trained.path)
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    model = trained.make_model(options.device)

    def written_with(length_penalty: float | None) -> list[str]:
        found = translate(model, trained.tokenizer, sources, beam=options.beam, length_penalty=length_penalty)
        return [hypotheses[0].text for hypotheses in found]

    if penalties:
        say(f"{counted(len(pairs), 'sentence')}, beam {options.beam}")
        print("length penalty    BLEU    chrF  brevity penalty  words by those of the references")
        found = {}
        for penalty in penalties:
            found[penalty], row = scores_with_brevity(written_with(penalty), targets)
            print(f"{penalty:14g}{row}", flush=True)
        print(f"best BLEU with --length_penalty {max(found, key=found.get):g}")
        return
    began = time.perf_counter()
    written = written_with(options.length_penalty)
    seconds = time.perf_counter() - began
    penalty = penalty_of(model, options.length_penalty)
    say(f"{counted(len(pairs), 'sentence')} in {seconds:.1f} s, beam {options.beam}, length penalty {penalty:g}")
    if options.out:
        write_lines(Path(options.out), written)
    print(f"exactly right: {scores(written, targets)[0]['exact']:.1%}")
    print("\n".join(scores_with_confidence(written, targets)))


def penalties_to_compare(options: EvaluateOptions) -> list[float]:
    """The length penalties to compare, in ascending order; empty if none are named.

    Raises: OptionError if they are not numbers from 0 to 10, or if the search has no choice between lengths.
    """
    if not options.compare:
        return []
    penalties = numbers(options.compare)
    if not penalties or not all(0 <= penalty <= 10 for penalty in penalties):
        raise OptionError(f"--compare {options.compare}: write numbers from 0 to 10 with commas between them: 0,0.6,1")
    if options.beam == 1 or options.out:
        other = "--out" if options.out else "--beam 1, a greedy search, which no length penalty changes"
        raise OptionError(f"--compare cannot be combined with {other}")
    return penalties


def pairs_to_translate(options: EvaluateOptions, path: Path) -> list[Pair]:
    """The pairs of the files that the options name, otherwise the held-out pairs of the run.

    Raises: CorpusError if there are none, or if they cannot be read.
    """
    if bool(options.src) != bool(options.tgt):
        raise OptionError("--src and --tgt must be given together: sentences and translations are in two files")
    if options.pairs:
        pairs = read_table(Path(options.pairs))
    elif options.src:
        pairs = read_two(Path(options.src), Path(options.tgt))
    else:
        pairs = load_pairs(options_of_run(FAMILY, path)).held_out
    if options.swap:
        pairs = [(target, source) for source, target in pairs]
    pairs, empty = without_empty(pairs)
    if empty:
        say(f"skipped: {counted(empty, 'pair')} with an empty side")
    if not pairs:
        raise CorpusError("there are no pairs to translate")
    return pairs[: options.max_pairs or None]


if __name__ == "__main__":
    run_command("studies.scores", main)
