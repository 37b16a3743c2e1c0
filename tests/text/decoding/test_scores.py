"""BLEU where it finds something to count, by the words of the language."""

import sys

import pytest

from text.decoding.scores import INSTALL, has_sentences, metrics, scores
from tinygrad_lite.errors import UserError

CHINESE, JAPANESE, THAI = "今天天气很好。", "今日はいい天気です。", "วันนี้อากาศดีมาก"
REFERENCES = {  # whether there is a BLEU, and how its words are found
    "words": (["eins", "zwei", "drei vier fünf"], None),
    "sentences": (["Das ist ein Satz.", "Ja."], "13a"),
    "Chinese": ([CHINESE, "是"], "zh"),
    "Japanese": ([JAPANESE], "char"),
    "Thai": ([THAI], "char"),
    "German with a Chinese word": (["Das Wort 天气 heißt Wetter."], "13a"),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_bleu_counts_the_words_of_the_language_or_is_not_there(name):
    references, tokenizer = REFERENCES[name]
    assert has_sentences(references) is (tokenizer is not None)
    pytest.importorskip("sacrebleu")
    bleu, _ = metrics(references)
    found = scores(references, references)[0]
    if tokenizer is None:
        assert bleu is None
        assert "bleu" not in found
    else:
        assert found["bleu"] == pytest.approx(bleu.corpus_score(references, [references]).score) == pytest.approx(100)
        assert f"tok:{tokenizer}|" in str(bleu.get_signature())
        worse = [reference[:-3] + "x" for reference in references]
        assert 0 < scores(worse, references)[0]["bleu"] < 100


def test_without_the_package_there_is_the_share_of_right_answers(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    assert scores(["ab", "c", "d"], ["ab", "cd", "d"]) == ({"exact": 2 / 3}, "66.7% exactly right")
    with pytest.raises(ValueError, match="argument 2 is longer"):
        scores(["ab"], ["ab", "c"])
    sentences = REFERENCES["sentences"][0]
    assert scores(sentences, sentences) == ({"exact": 1.0}, f"100.0% exactly right, {INSTALL}")
    with pytest.raises(UserError, match="sacrebleu is not installed"):
        metrics(sentences)
