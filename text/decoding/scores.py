"""Scores of what a model writes: BLEU and chrF of translations, the share of right answers.

BLEU counts the n-grams of one to four words that a translation shares with its reference, chrF those of one to six
characters. Both range from 0 to 100. Scores are comparable only if they were computed in the same way, which
sacrebleu's signature states. The package sacrebleu computes them, an extra: pip install -e ".[translate]"

References: Papineni et al. 2002 (BLEU); Popović 2015 (chrF); Post 2018, "A call for clarity in reporting BLEU scores".
"""

import re
from collections.abc import Sequence
from typing import Any

from tinygrad_lite.errors import UserError

INSTALL = 'for BLEU and chrF: pip install -e ".[translate]"'
HAN = "\u3400-\u9fff\uf900-\ufaff"
OTHERS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff"  # Thai, Lao, Burmese, Khmer, kana
UNSPACED, KANA_AND_OTHERS = re.compile(f"[{HAN}{OTHERS}]"), re.compile(f"[{OTHERS}]")


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
