"""The scores of an evaluation: with intervals, with the brevity penalty, or why there are none."""

import pytest

from extra.studies.scores import scores_with_brevity, scores_with_confidence
from tinygrad_lite.errors import CorpusError


def test_bleu_comes_with_its_signature_or_a_reason(sacrebleu):
    sentences, words = ["Das ist ein Satz.", "Ja."], ["eins", "zwei", "drei vier fünf"]
    bleu, signature, chrf, last = scores_with_confidence(sentences, sentences)
    assert (bleu.startswith("BLEU = 100.00"), chrf.startswith("chrF2 = 100.00")) == (True, True)
    assert [line[:12] for line in (signature, last)] == ["  signature "] * 2
    assert "|tok:13a|" in signature
    assert scores_with_brevity(sentences, sentences)[0] == pytest.approx(100)
    why, chrf, last = scores_with_confidence(words, words)
    assert (why, chrf[:5]) == ("no BLEU: it counts four words in a row, and no reference has four", "chrF2")
    with pytest.raises(CorpusError, match=r"--compare compares BLEU\. no BLEU: it counts four"):
        scores_with_brevity(words, words)
