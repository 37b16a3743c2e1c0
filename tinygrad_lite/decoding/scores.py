"""Scores of translations: BLEU and chrF, computed by the package sacrebleu, and the share of exact matches.

BLEU counts the n-grams of one to four words that a translation shares with its reference, chrF those of one to six
characters. Both range from 0 to 100. Scores are comparable only if they were computed in the same way, which
sacrebleu's signature states. sacrebleu is an extra: pip install -e ".[translate]"

References: Papineni et al. 2002 (BLEU); Popović 2015 (chrF); Post 2018, "A call for clarity in reporting BLEU scores".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinygrad_lite.cli.errors import UserError

INSTALL = 'for BLEU and chrF: pip install -e ".[translate]"'
SAMPLES = 1000  # of the bootstrap, for a confidence interval


def scores(written: Sequence[str], references: Sequence[str]) -> tuple[dict[str, float], str]:
    """The scores by name, and the same in words.

    BLEU and chrF need sacrebleu, and BLEU a reference of at least four words.
    """
    measures = {}
    exact = sum(one == other for one, other in zip(written, references, strict=True)) / len(written)
    words = [f"{exact:.1%} exactly right"]
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError:
        words.append(INSTALL)
    else:
        measures["chrf"] = CHRF().corpus_score(list(written), [list(references)]).score
        words.insert(0, f"chrF {measures['chrf']:.1f}")
        if max(len(reference.split()) for reference in references) >= 4:
            measures["bleu"] = BLEU().corpus_score(list(written), [list(references)]).score
            words.insert(0, f"BLEU {measures['bleu']:.1f}")
    return {**measures, "exact": exact}, ", ".join(words)


def scores_with_brevity(written: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """BLEU, and a row of numbers: BLEU, chrF, BLEU's brevity penalty, and the number of words over the references'.

    The brevity penalty is 1 if the translations have r words or more, as the references do, else exp(1 - r / c) for c
    words: the factor by which BLEU falls because they are too short (Papineni et al. 2002, section 2.2.2).

    Raises: UserError if sacrebleu is not installed.
    """
    bleu, chrf = (metric.corpus_score(list(written), [list(references)]) for metric in metrics())
    return bleu.score, f"{bleu.score:8.2f}{chrf.score:8.2f}{bleu.bp:17.3f}{bleu.sys_len / bleu.ref_len:12.3f}"


def scores_with_confidence(written: Sequence[str], references: Sequence[str]) -> list[str]:
    """BLEU and chrF as sacrebleu prints them: with their parts, 95 % confidence intervals, and signatures.

    The interval estimates how the score would vary with other sentences of the same kind: sacrebleu resamples all
    sentences with replacement, SAMPLES times, with a fixed seed (the bootstrap of Koehn 2004).

    Raises: UserError if sacrebleu is not installed.
    """
    lines = []
    for metric in metrics():
        score = metric.corpus_score(list(written), [list(references)], n_bootstrap=SAMPLES)
        lines += [str(score), f"  signature {metric.get_signature()}"]
    return lines


def metrics() -> tuple[Any, Any]:
    """sacrebleu's BLEU and chrF; UserError if it is not installed."""
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError:
        raise UserError(f"sacrebleu is not installed; {INSTALL}") from None
    return BLEU(), CHRF()
