"""How good are translations? BLEU and chrF, computed by the package sacrebleu, and the share that is exactly right.

BLEU counts which runs of one to four words a translation has in common with a reference, chrF which runs of one to
six characters. Both go from 0 to 100. The numbers mean something only together with how they were computed, which
sacrebleu's signature says. It is an extra: pip install -e ".[translate]"

References: Papineni et al. 2002 (BLEU); Popović 2015 (chrF); Post 2018, "A call for clarity in reporting BLEU scores".
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad_lite.cli.errors import UserError

INSTALL = 'for BLEU and chrF: pip install -e ".[translate]"'
SAMPLES = 1000  # drawn for a confidence interval


def scores(written: Sequence[str], references: Sequence[str]) -> tuple[dict[str, float], str]:
    """Numbers by their names, and the same in words.

    BLEU and chrF are there only where sacrebleu is installed, BLEU only if there is a reference of four words.
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


def scores_with_confidence(written: Sequence[str], references: Sequence[str]) -> list[str]:
    """BLEU and chrF as sacrebleu prints them: with their parts, 95 % confidence intervals, and signatures.

    The interval says how far the number would move with other sentences of the same kind: sacrebleu draws as many
    sentences as there are, with repetition, SAMPLES times, always the same way (the bootstrap of Koehn 2004).

    Raises: UserError if sacrebleu is not installed.
    """
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError:
        raise UserError(f"sacrebleu is not installed; {INSTALL}") from None
    lines = []
    for metric in (BLEU(), CHRF()):
        score = metric.corpus_score(list(written), [list(references)], n_bootstrap=SAMPLES)
        lines += [str(score), f"  signature {metric.get_signature()}"]
    return lines
