"""Scores of what a model writes: BLEU and chrF of translations, ROUGE of summaries, the share of right answers.

BLEU counts the n-grams of one to four words that a translation shares with its reference, chrF those of one to six
characters. Both range from 0 to 100. Scores are comparable only if they were computed in the same way, which
sacrebleu's signature states. ROUGE-1 and ROUGE-2 count the words and the pairs of words that a summary shares with its
reference, ROUGE-L the longest common subsequence of words; each is the harmonic mean of precision and recall, in
percent, of Porter's stems. The packages sacrebleu and rouge-score compute them, an extra: pip install -e ".[translate]"

References: Papineni et al. 2002 (BLEU); Popović 2015 (chrF); Post 2018, "A call for clarity in reporting BLEU scores";
Lin 2004 (ROUGE).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_lite.errors import CorpusError, UserError

INSTALL = 'for BLEU and chrF: pip install -e ".[translate]"'
NO_BLEU = "no BLEU: it counts four words in a row, and no reference has four"
HAN = "\u3400-\u9fff\uf900-\ufaff"
OTHERS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff"  # Thai, Lao, Burmese, Khmer, kana
UNSPACED, KANA_AND_OTHERS = re.compile(f"[{HAN}{OTHERS}]"), re.compile(f"[{OTHERS}]")
SAMPLES = 1000  # of the bootstrap, for a confidence interval


def scores(written: Sequence[str], references: Sequence[str]) -> tuple[dict[str, float], str]:
    """The scores by name, and the same in words.

    BLEU and chrF need sacrebleu; without sentences (`has_sentences`), as in a toy with one word, nobody misses them.
    """
    exact = sum(one == other for one, other in zip(written, references, strict=True)) / len(written)
    said = f"{exact:.1%} exactly right"
    try:
        bleu, chrf = metrics(references)
    except UserError:
        return {"exact": exact}, f"{said}, {INSTALL}" if has_sentences(references) else said
    measures = {}
    for name, metric in {"chrF": chrf, "BLEU": bleu}.items():
        if metric:
            measures[name.lower()] = metric.corpus_score(list(written), [list(references)]).score
            said = f"{name} {measures[name.lower()]:.1f}, {said}"
    return {**measures, "exact": exact}, said


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


def metrics(references: Sequence[str]) -> tuple[Any, Any]:
    """sacrebleu's BLEU, or None if no reference has four words, and chrF.

    In Chinese and in other scripts without spaces each character is a word; the signature says so.

    Raises: UserError if sacrebleu is not installed.
    """
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError:
        raise UserError(f"sacrebleu is not installed; {INSTALL}") from None
    text = "".join(references)
    kind = "13a" if not is_unspaced(text) else "char" if KANA_AND_OTHERS.search(text) else "zh"
    return BLEU(tokenize=kind) if has_sentences(references) else None, CHRF()


def is_unspaced(text: str) -> bool:
    """Whether most letters of a text belong to scripts that put no spaces between words."""
    return 2 * len(UNSPACED.findall(text)) > sum(map(str.isalpha, text))


def has_sentences(references: Sequence[str]) -> bool:
    """Whether a reference has four words, so that BLEU finds something to count."""
    return max(len(text if is_unspaced(text) else text.split()) for text in references) >= 4


ROUGE = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}  # rouge-score's names, and the usual ones


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


def with_interval(right: int, asked: int) -> str:
    """A share of right answers, with Wilson's 95 % interval.

    >>> with_interval(90, 100)
    '90.0% (82.6% to 94.5%)'
    """
    z, p = 1.96, right / asked
    middle = (p + z * z / (2 * asked)) / (1 + z * z / asked)
    half = z * math.sqrt(p * (1 - p) / asked + z * z / (4 * asked * asked)) / (1 + z * z / asked)
    return f"{p:.1%} ({middle - half:.1%} to {middle + half:.1%})"
