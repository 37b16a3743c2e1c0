"""Measure how well a model translates, summarises or answers: it is given held-out texts, and what it writes is scored.

    python -m extra.studies.scores out/translate-de-en                       the run's own held-out pairs
    python -m extra.studies.scores out/translate-de-en --beam 1              greedily
    python -m extra.studies.scores out/translate-de-en --pairs test.tsv      other pairs: source TAB target in each line
    python -m extra.studies.scores out/translate-de-en --src a.de --tgt a.en
    python -m extra.studies.scores out/translate-de-en --out written.txt     save the translations, one per line
    python -m extra.studies.scores out/translate-de-en --compare 0,0.6,1     which length penalty is best?
    python -m extra.studies.scores out/gpt-translate                         a GPT that learned from pairs
    python -m extra.studies.scores out/gpt-summarize --rouge true            summaries: ROUGE, next to two simple ones

The held-out pairs are those of the training run, found by the settings in the checkpoint; the paths of the run's files
are in the options.json next to it. The scores, with confidence intervals and sacrebleu's signatures, go to stdout. The
simple summaries, which a model must beat, are the first sentence of the text and its first eight words.

ROUGE-1 and ROUGE-2 count the words and the pairs of words that a summary shares with its reference, ROUGE-L the longest
common subsequence of words; each is the harmonic mean of precision and recall, in percent, of Porter's stems. The
package rouge-score computes them, an extra: pip install -e ".[translate]"

Reference: Lin 2004 (ROUGE).
"""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from extra import families
from extra.family import read_any
from extra.pairs.answering import answer, separator_of, warn_of_long
from extra.pairs.pairs import load_pairs as load_answers
from extra.pairs.pairs import positions
from extra.studies.program import numbers, options_of_run, program, write_lines
from gpt.model import GPT
from seq2seq.corpus import load_pairs
from seq2seq.sample import sentences_in
from seq2seq.translate import translate
from text.decoding.sample_options import LENGTH_PENALTY
from text.decoding.scores import metrics, scores
from tinygrad_lite.config import option
from tinygrad_lite.errors import CheckpointError, CorpusError, OptionError, UserError, counted
from training.cli.console import run_command, say, show
from training.corpora.divided_pairs import read_table, read_two, without_empty
from training.corpora.pair_cleaning import SENTENCE_END, Pair
from training.family import Trained
from training.folder import tune_memory
from training.pair_data import encode_pairs

FIRST_WORDS = 8
NO_BLEU = "no BLEU: it counts four words in a row, and no reference has four"
SAMPLES = 1000  # of the bootstrap, for a confidence interval
ROUGE = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}  # rouge-score's names, and the usual ones


@dataclasses.dataclass
class EvaluateOptions:
    """The options of the evaluation."""

    beam: int = option(5, "hypotheses of the search; 1: greedy", unit="hypotheses", low=1, high=1000)
    length_penalty: float | None = option(
        None, "exponent that favours longer hypotheses; 0: no penalty; none: that of the model", low=0.0, high=10.0
    )
    compare: str = option("", "length penalties to compare, such as 0,0.6,1: a row of scores for each, then the best")
    rouge: bool = option(False, "score summaries by ROUGE, instead of BLEU and chrF")
    pairs: str = option("", "file to translate instead: source TAB target in each line", is_path=True)
    src: str = option("", "file to translate instead: a source sentence in each line", is_path=True)
    tgt: str = option("", "its reference translations, line by line", is_path=True)
    swap: bool = option(False, "the files have the target first")
    max_pairs: int = option(0, "evaluate the first N pairs only; 0: all", unit="pairs", low=0)
    out: str = option("", "file for the translations", is_path=True)
    device: str = option("cpu", "where to compute", choices=("cpu", "cuda", "auto"))


@program("extra.studies.scores", EvaluateOptions, "CHECKPOINT", "out/translate-de-en")
def main(options: EvaluateOptions, name: str) -> None:
    """Give a model held-out texts to translate or to answer, and score what it writes."""
    tune_memory()
    penalties = penalties_to_compare(options)
    trained = read_any(Path(name), (families.SEQ2SEQ, families.GPT))
    say(trained.about)
    pairs = pairs_to_translate(options, trained)
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    _ = rouge(targets[:1], targets[:1]) if options.rouge else metrics(targets)  # fails at once if it is not installed
    model, size = trained.make_model(options.device), trained.config.block_size
    if isinstance(model, GPT):
        warn_of_long(trained.tokenizer, sources, size)
    else:
        sources = sentences_in(sources, model, trained.tokenizer)

    def written_with(length_penalty: float) -> list[str]:
        if isinstance(model, GPT):
            return answer(model, trained.tokenizer, sources, options.beam, length_penalty)
        found = translate(model, trained.tokenizer, sources, beam=options.beam, length_penalty=length_penalty)
        return [hypotheses[0].text for hypotheses in found]

    if penalties:
        say(f"{counted(len(pairs), 'text')}, beam {options.beam}")
        show("length penalty    BLEU    chrF  brevity penalty  words by those of the references")
        found = {}
        for penalty in penalties:
            found[penalty], row = scores_with_brevity(written_with(penalty), targets)
            show(f"{penalty:14g}{row}")
        show(f"best BLEU with --length_penalty {max(found, key=found.get):g}")
        return
    penalty = options.length_penalty
    if penalty is None:
        penalty = LENGTH_PENALTY if isinstance(model, GPT) else model.config.length_penalty
    began = time.perf_counter()
    written = written_with(penalty)
    seconds = time.perf_counter() - began
    say(f"{counted(len(pairs), 'text')} in {seconds:.1f} s, beam {options.beam}, length penalty {penalty:g}")
    if options.out:
        write_lines(Path(options.out), written)
    table = rouge_table(sources, targets, written) if options.rouge else scores_with_confidence(written, targets)
    show("\n".join([f"exactly right: {scores(written, targets)[0]['exact']:.1%}", *table]))


def penalties_to_compare(options: EvaluateOptions) -> list[float]:
    """The length penalties to compare, in ascending order; empty if none are named.

    Raises: OptionError if they are not numbers from 0 to 10, or if the search has no choice between lengths.
    """
    if not options.compare:
        return []
    what = "numbers from 0 to 10 with commas between them: 0,0.6,1"
    penalties = numbers(options.compare, "--compare", what, lambda penalty: 0 <= penalty <= 10)
    for given, other in (
        (options.out, "--out"),
        (options.rouge, "--rouge: it compares BLEU"),
        (options.beam == 1, "--beam 1, a greedy search, which no length penalty changes"),
    ):
        if given:
            raise OptionError(f"--compare cannot be combined with {other}")
    return penalties


def pairs_to_translate(options: EvaluateOptions, trained: Trained) -> list[Pair]:
    """The pairs of the files that the options name, otherwise the held-out pairs of the run.

    Raises: CheckpointError if the model did not learn from pairs; CorpusError if there are none, or if they cannot be
        read.
    """
    if trained.model_class is GPT and not separator_of(trained.tokenizer):
        raise CheckpointError(f"{trained.path} continues texts; this measures models that learned from pairs")
    if bool(options.src) != bool(options.tgt):
        raise OptionError("--src and --tgt must be given together: sentences and translations are in two files")
    if options.pairs:
        pairs = read_table(Path(options.pairs))
    elif options.src:
        pairs = read_two(Path(options.src), Path(options.tgt))
    else:
        pairs = held_out_pairs(trained)
    if options.swap:
        pairs = [(target, source) for source, target in pairs]
    pairs, empty = without_empty(pairs)
    if empty:
        say(f"skipped: {counted(empty, 'pair')} with an empty side")
    if not pairs:
        raise CorpusError("there are no pairs to translate")
    return pairs[: options.max_pairs or None]


def held_out_pairs(trained: Trained) -> list[Pair]:
    """The held-out pairs of the run; of a GPT, those that fit into its context."""
    path, tokenizer = trained.adapter or trained.path, trained.tokenizer
    if trained.model_class is not GPT:
        return load_pairs(options_of_run(families.SEQ2SEQ, path)).held_out
    held_out = load_answers(options_of_run(families.GPT, path)).held_out
    separator, room = separator_of(tokenizer), trained.config.block_size
    tokens = encode_pairs(tokenizer, held_out, separator, separator)
    return [pair for pair, ids in zip(held_out, tokens, strict=True) if positions(ids) <= room]


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


# --- measures ------------------------------------------------------------------------------------------------


def scores_with_brevity(written: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """BLEU, and a row of numbers: BLEU, chrF, BLEU's brevity penalty, and the number of words over the references'.

    The brevity penalty is 1 if the translations have r words or more, as the references do, else exp(1 - r / c) for c
    words: the factor by which BLEU falls because they are too short (Papineni et al. 2002, section 2.2.2).

    Raises: UserError if sacrebleu is not installed, or if there is no BLEU.
    """
    found = metrics(references)
    if not all(found):
        raise CorpusError(f"--compare compares BLEU. {NO_BLEU}")
    bleu, chrf = (metric.corpus_score(list(written), [list(references)]) for metric in found)
    return bleu.score, f"{bleu.score:8.2f}{chrf.score:8.2f}{bleu.bp:17.3f}{bleu.sys_len / bleu.ref_len:12.3f}"


def scores_with_confidence(written: Sequence[str], references: Sequence[str]) -> list[str]:
    """BLEU and chrF as sacrebleu prints them: with their parts, 95 % confidence intervals, and signatures.

    The interval estimates how the score would vary with other sentences of the same kind: sacrebleu resamples all
    sentences with replacement, SAMPLES times, with a fixed seed (the bootstrap of Koehn 2004).

    Raises: UserError if sacrebleu is not installed.
    """
    bleu, chrf = metrics(references)
    lines = [] if bleu else [NO_BLEU]
    for metric in filter(None, (bleu, chrf)):
        try:
            score = metric.corpus_score(list(written), [list(references)], n_bootstrap=SAMPLES)
        except TypeError:  # sacrebleu 2.6 fails where a few of the samples score exactly 0: then without an interval
            score = metric.corpus_score(list(written), [list(references)])
        lines += [str(score), f"  signature {metric.get_signature()}"]
    return lines


def rouge(written: Sequence[str], references: Sequence[str]) -> dict[str, np.ndarray]:
    """ROUGE-1, ROUGE-2 and ROUGE-L of each summary, from 0 to 100.

    Raises: UserError if rouge-score is not installed.
    """
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise UserError('rouge-score is not installed; for ROUGE: pip install -e ".[translate]"') from None
    scorer = RougeScorer([*ROUGE], use_stemmer=True)
    found = [scorer.score(target=right, prediction=one) for one, right in zip(written, references, strict=True)]
    return {ROUGE[name]: np.array([100 * score[name].fmeasure for score in found]) for name in ROUGE}


def mean_with_interval(values: np.ndarray) -> str:
    """A mean, with half the width of its 95 % interval by the bootstrap: SAMPLES times, the items are drawn again.

    >>> mean_with_interval(np.array([10.0, 20.0] * 50))
    '15.0 ± 1.0'
    """
    drawn = np.random.default_rng(0).integers(0, len(values), (SAMPLES, len(values)))
    low, high = np.percentile(values[drawn].mean(-1), (2.5, 97.5))
    return f"{values.mean():.1f} ± {(high - low) / 2:.1f}"


if __name__ == "__main__":
    run_command("extra.studies.scores", main)
