import functools
import math
import re
from pathlib import Path

import pytest

from docs.course import check
from extra.tokenizers.end_of_word import EndOfWordTokenizer
from extra.tokenizers.wordpiece import WordPieceTokenizer
from tests.tiny_runs import ROOT
from text.tokenizers.bpe import BPETokenizer
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.word import WordTokenizer, split_pieces

compare = check.load(ROOT / "docs/extra/compare_tokenizers.py")
KINDS = ["char", "byte", "bpe", "bpe-w", "word", "wordpiece"]
LINES = ["Der Geist der Größe spricht,", "die Seele schweigt und nicht", "der Tag, die Nacht, das Licht.", ""]


@pytest.fixture
def file(tmp_path):
    """A text of 1,000 lines, in whose last tenth a few words and characters are new."""
    path = tmp_path / "verse.txt"
    path.write_text("\n".join(LINES * 240) + "\nQuark № 7\n" + "\n".join(LINES * 5), encoding="utf-8", newline="\n")
    return str(path)


def table(out: str) -> dict[str, list[str]]:
    """The rows of the table by tokenizer, each as its words."""
    header, *rows = (line.split() for line in out.split("\n\n")[0].splitlines())
    assert header == "tokenizer vocabulary characters per token unknown to restore learned in encodes".split()
    return {row[0]: row[1:] for row in rows}


def test_the_table_has_the_numbers_of_each_tokenizer(file, ran):
    out, err = ran(compare.main, file, "--vocab_size", 300, "--sample", 0)
    rows = table(out)
    assert list(rows) == KINDS
    assert ("verse.txt" in err, out.count("\n")) == (True, 7)

    text = Path(file).read_bytes().decode("utf-8")
    cut = round(len(text) * 0.9)
    learned, held_out = text[:cut], text[cut:]
    known = set(split_pieces(learned))
    lost = sum(len(piece) for piece in split_pieces(held_out) if piece not in known)
    assert lost >= len("Quark№7")
    kinds = (ByteTokenizer(), BPETokenizer.train(learned, 300), WordTokenizer.train(learned, 300))
    for tokenizer, unknown in zip(kinds, (0, 0, lost), strict=True):
        length = len(held_out) / len(tokenizer.encode(held_out))
        expected = [str(tokenizer.vocab_size), f"{length:.2f}", f"{unknown / len(held_out):.2%}"]
        assert rows[tokenizer.kind][:3] == expected
    assert rows["char"][1:3] == ["1.00", f"{len('Qk№7') / len(held_out):.2%}"]
    for row in rows.values():
        assert re.fullmatch(r"\d\.\d\d bits \d+\.\d\d s \d+\.\d MB/s", " ".join(row[3:]))
    assert [kind for kind, row in rows.items() if row[3] == "0.00"] == ["byte", "bpe"]  # which lose nothing


def test_what_tokens_leave_out_is_counted_in_bits():
    """By hand: the unknown words of the text learned from are ab and b, so a code has a 1, b 2, end 2 of 6 places."""
    words = WordTokenizer.train("ja ja ja ab b ja", 3)  # ja, the blank, <unk>
    assert words.unknown("ja ja ja ab b ja") == {"ab": 1, "b": 1}
    bits = [math.log2(6 / n) for n in (1, 2, 2)]
    assert compare.bits_to_restore(words, "ja ja ja ab b ja", "ja ab ja") == pytest.approx(sum(bits) / 8)
    new = math.log2(6) + 21 + math.log2(6 / 2)  # ö and the end
    assert compare.bits_to_restore(words, "ja ja ja ab b ja", "ö ja") == pytest.approx(new / 4)
    assert compare.bits_to_restore(words, "ja ja ja ab b ja", "ja ja") == 0
    marks = EndOfWordTokenizer.train("a b\na b a", 9)  # white space: 3 blanks, 1 newline, 1 place kept
    spaces = math.log2(5 / 3) + math.log2(5) + math.log2(5) + 2 * 21
    assert compare.bits_to_restore(marks, "a b\na b a", "a b\nb\n\na") == pytest.approx(spaces / 8)
    pieces = WordPieceTokenizer.train("a, a, b a", 20)  # between words: 3 blanks, 2 times nothing, 1 place kept
    spaces = math.log2(6 / 3) + 2 * math.log2(6 / 2)
    assert compare.bits_to_restore(pieces, "a, a, b a", "a,b a") == pytest.approx(spaces / 5)
    assert compare.spaces(pieces, "a, a.\nb") == {"": 2, " ": 1, "\n": 1}
    assert compare.letters({"ab": 2, "b": 1}) == {"b": 3, "": 3, "a": 2}


def test_there_are_marks_between_tokens_and_control_characters_are_escaped():
    show = functools.partial(compare.show_tokens, colour=False)
    assert show(ByteTokenizer(), "\x1b[31m\r\x07") == "\\x1b|[|3|1|m|\\r|\\x07"
    assert show(ByteTokenizer(), "nä\nja") == "n|\\xc3|\\xa4|\\n|\nj|a"
    assert show(WordTokenizer.train("Ach, ich", 9), "Ach, du,\nich") == "Ach|,| |<unk>|,|<unk>|ich"
