"""How much of a running text do its most frequent words cover?

    python docs/course/05-tokens/coverage.py goethe     a corpus by name, or a file in UTF-8

A word is a run of letters, capitals included. Words are counted in the part of the text that training reads; the N most
frequent ones are the vocabulary, and its coverage is the share of the running words that are in it, there and in the
held-out part. Words that never occurred before limit the latter.
"""

import sys
from collections import Counter
from itertools import accumulate
from pathlib import Path

import families  # noqa: F401, so that the corpora of the shelf have names too
from text.tokenizers.word import split_pieces
from tinygrad_lite.errors import UserError
from training.cli.console import run_command
from training.corpora.texts import RECIPES, load_corpus

SIZES = (1000, 2000, 5000, 10_000, 20_000, 50_000)


def main(argv: list[str]) -> int:
    """Print the table for the text that the command line names."""
    name = argv[0] if argv else "goethe"
    corpus = load_corpus(name, files=[] if name in RECIPES else [name])
    seen, new = ([piece for piece in split_pieces(part) if piece[0].isalpha()] for part in corpus.split())
    if not seen or not new:
        raise UserError(f"{name} has no words to learn from, or none held out")
    counts, unseen = Counter(seen), Counter(new)
    ranked = [word for word, _ in counts.most_common()]
    covered = [list(accumulate(part[word] for word in ranked)) for part in (counts, unseen)]
    print(f"{len(seen):,} running words, {len(ranked):,} different; {len(new):,} running words held out\n")
    print("| most frequent words | of the text itself | of the held-out part |\n|---|---|---|")
    for size in [size for size in SIZES if size < len(ranked)] + [len(ranked)]:
        shares = (sums[size - 1] / len(part) for sums, part in zip(covered, (seen, new), strict=True))
        print(f"| {size:,} | {' | '.join(f'{share:.1%}' for share in shares)} |")
    return 0


if __name__ == "__main__":
    run_command(Path(sys.argv[0]).name, main, __doc__)
