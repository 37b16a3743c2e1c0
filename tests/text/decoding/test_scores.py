"""BLEU where it finds something to count, by the words of the language."""

import pytest

from text.decoding.scores import has_sentences, scores, scores_with_brevity, scores_with_confidence
from tinygrad_lite.errors import CorpusError

CHINESE, JAPANESE, THAI = "今天天气很好。", "今日はいい天気です。", "วันนี้อากาศดีมาก"
REFERENCES = {  # whether there is a BLEU, and how its words are found
    "words": (["eins", "zwei", "drei vier fünf"], None),
    "sentences": (["Das ist ein Satz.", "Ja."], "13a"),
    "single characters": (["好", "是的"], None),
    "Chinese": ([CHINESE, "是"], "zh"),
    "Chinese with names": ([f"{CHINESE} Goethe", CHINESE], "zh"),
    "Japanese": ([JAPANESE], "char"),
    "Thai": ([THAI], "char"),
    "German with a Chinese word": (["Das Wort 天气 heißt Wetter."], "13a"),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_bleu_counts_the_words_of_the_language_or_is_not_there(name):
    pytest.importorskip("sacrebleu")
    references, tokenizer = REFERENCES[name]
    assert has_sentences(references) is (tokenizer is not None)
    lines = scores_with_confidence(references, references)
    assert lines[-1].startswith("  signature ")
    if tokenizer is None:
        assert "bleu" not in scores(references, references)[0]
        assert "BLEU = " not in " ".join(lines)
        assert lines[0] == "no BLEU: it counts four words in a row, and no reference has four"
        with pytest.raises(CorpusError, match=r"--compare compares BLEU\. no BLEU: it counts four"):
            scores_with_brevity(references, references)
    else:
        assert scores(references, references)[0]["bleu"] == pytest.approx(100)
        assert f"tok:{tokenizer}|" in lines[1]
        worse = [reference[:-3] + "x" for reference in references]
        assert 0 < scores(worse, references)[0]["bleu"] < 100
        assert scores_with_brevity(references, references)[0] == pytest.approx(100)
