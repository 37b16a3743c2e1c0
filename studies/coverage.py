"""How much of a running text do the most frequent words cover?

    python -m studies.coverage goethe                    a corpus by name
    python -m studies.coverage my.txt --words 500,5000   any UTF-8 text, other numbers of words

A word is a run of letters, capitals included, so Mensch and Menschen are two. Words are counted in the first nine
tenths of the text (for some corpora, in all but their last works), and the N most frequent ones are the vocabulary. Its
coverage is the share of the running words that are in it, measured on the part where they were counted and on the
held-out part. Only the latter says how many words of a new text are known. Words that never occurred before limit it:
in the last row, all words are in the vocabulary.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from studies.compare_tokenizers import ABOUT_FILE, read_corpus, split
from studies.program import program
from tinygrad_lite.errors import CorpusError
from workshop.cli.console import run_command
from workshop.cli.options import option, whole_numbers
from workshop.tokenizers.word import split_pieces


@dataclass
class CoverageOptions:
    """The options of the command."""

    words: str = option("1000,2000,5000,10000,20000,50000", "sizes of the vocabulary, such as 1000,50000", unit="words")


@program("studies.coverage", CoverageOptions, "FILE", "goethe", epilog=ABOUT_FILE)
def main(options: CoverageOptions, name: str) -> None:
    """How much of a running text do the most frequent words cover?"""
    sizes = sorted({*whole_numbers(options.words, "--words", "1000,50000", low=1)})
    counted, held_out = map(running_words, split(read_corpus(name)))
    different = len(set(counted))
    if not counted or not held_out:
        raise CorpusError("the text has no words in its first nine tenths, or none in its last: use another text")
    print(f"{len(counted):,} running words, {different:,} different; {len(held_out):,} running words held out\n")
    print("vocabulary    of the text itself    of held-out text")
    for size, own, new in coverage(counted, held_out, [*(size for size in sizes if size < different), different]):
        print(f"{size:>10,}    {own:>18.2%}    {new:>16.2%}" + ("    all words" if size == different else ""))


def running_words(text: str) -> list[str]:
    """The words of a text in order, without spaces, digits and punctuation.

    >>> running_words("Es irrt der Mensch, so lang' er strebt. (V. 317)")
    ['Es', 'irrt', 'der', 'Mensch', 'so', 'lang', 'er', 'strebt', 'V']
    """
    return [piece for piece in split_pieces(text) if piece[0].isalpha()]


def coverage(counted: Sequence[str], held_out: Sequence[str], sizes: Sequence[int]) -> list[tuple[int, float, float]]:
    """For each size N, the shares of both texts that the N most frequent words of the first one cover.

    Of equally frequent words, the one that comes first is taken first.

    >>> coverage("a b a c a b".split(), "b d c a".split(), [1, 2])
    [(1, 0.5, 0.25), (2, 0.8333333333333334, 0.5)]
    """
    ranked, unseen = Counter(counted).most_common(), Counter(held_out)
    own = list(accumulate(count for _, count in ranked))
    new = list(accumulate(unseen[word] for word, _ in ranked))
    return [(size, own[size - 1] / len(counted), new[size - 1] / len(held_out)) for size in sizes]


if __name__ == "__main__":
    run_command("studies.coverage", main)
