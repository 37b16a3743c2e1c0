"""How good is a GPT's loss? Compare it with models that only count: n-grams with Kneser-Ney smoothing.

    python -m extra.studies.baselines                          orders 1 to 6 on goethe, and the newest run under out/
    python -m extra.studies.baselines --text my.txt            on your own text
    python -m extra.studies.baselines --orders 3-7 --checkpoint out/goethe/best.safetensors
    python -m extra.studies.baselines --stride 32              the GPT once more, in overlapping windows (gpt/score.py)

Every model learns from the first nine tenths of the text and predicts the last tenth, as in training; the table goes
to stdout. An n-gram model of order n predicts a character w from the n - 1 characters before it, its context h, by
counting. c(hw) is how often h was followed by w, and c(h·) = Σ_w c(hw) is how often it was followed by anything. Then
P(w | h) = c(hw) / c(h·) is the obvious estimate, and a useless one: a character never seen after its context gets
probability 0, which costs infinitely many bits. Three ideas repair it.

1. Discount. Subtract D < 1 from every count, and give the probability saved to a model whose context h' is shorter by
   one (h without its first character). With N(h·) = how many different characters followed h, D N(h·) is saved, so

       P(w | h) = max(c(hw) - D, 0) / c(h·)  +  D N(h·) / c(h·) · P'(w | h')

   sums to 1 over w if P' does. D is estimated from n1 and n2, how many n-grams were seen exactly once and twice:
   D = n1 / (n1 + 2 n2). That is close to the best D for predicting each occurrence from all the others (Ney, Essen,
   Kneser 1994). Each order has its own D.

2. Continuation counts. What should P' be? W is more frequent than p in goethe, yet p has been seen after 30 different
   characters and W after 5 (a space, a new line ...). P' is consulted when h was seen with other characters or not at
   all, and then p is the better guess. Kneser and Ney make this precise: averaged over all contexts, the mixture
   must have the frequencies of the text, Σ_h c(h·) P(w | h) = Σ_h c(hw). Put the formula in, for order 2, with
   N(·w) = how many different characters came before w, and N(··) = Σ_w N(·w) = Σ_h N(h·):

       Σ_h [max(c(hw) - D, 0) + D N(h·) P'(w)]  =  Σ_h c(hw) - D N(·w) + D N(··) P'(w)

   which is Σ_h c(hw) exactly if P'(w) = N(·w) / N(··). So a shorter context does not count how often, but after how
   many different characters: in the formula of idea 1, c'(g) = N(·g) takes the place of c(g) for every n-gram g that
   is not of the highest order (and is discounted again, so that a still shorter context has its say).

3. An end. Below order 1 is 1 / V for each of the V different characters, so that those missing from the nine tenths get
   a probability too. V is counted in the whole text, as for the character tokenizer: a model that predicts the held-out
   text, whatever characters it has, must know which characters there are.

By hand, for "barbara" and order 2. Order 1 counts predecessors: a has b and r, b has r (nothing is before the first
b), r has a; so c' = 2, 1, 1, n1 = 2, n2 = 1, D = 1/2, and P'(b) = (1 - 1/2) / 4 + (1/2 · 3) / 4 · 1/3 = 1/4. Order 2
has ba and ar twice, rb and ra once, D = 2 / (2 + 2 · 2) = 1/3: P(b | r) = (1 - 1/3) / 2 + (1/3 · 2) / 2 · 1/4 = 5/12.

>>> model = KneserNey("barbara", order=2, vocab_size=3)
>>> [round(12 * model.probability(character, "r"), 9) for character in "abr"]
[6.0, 5.0, 1.0]

What the table says. On goethe (378,000 characters to learn from) order 6 needs 2.13 bits per character, and a GPT with
the parts of GPT-2 on characters, `python train.py goethe-char`, 2.47: a minute of training loses to two seconds of
counting. (0.04 of that is due to the windows, in each of which the GPT starts again.) Counting memorises: after one
pass over the text the table is complete. Gradient descent moves 800,000 weights a little at a time, and in 2,000 steps
of 12 · 64 characters it saw each character about four times; its loss was still falling then. With modern parts and
larger tokens, two minutes suffice: `python train.py` needs 1.90, less than any n-gram model here.

More effort helps the two differently. Order 7 has 1.8 times the n-grams of order 6 and gains 0.002 bits, and order 10
is worse: 22 % of the held-out characters follow six that never occur together in the nine tenths, and half follow six
that occur at most five times. For counts, two contexts have in common only the characters in which both end, and order
6 cannot use anything more than five characters back. The GPT reads hundreds, and what it learns in one context holds in
all that it finds similar. Only a GPT whose loss is below this table has certainly learned more than which letters tend
to follow a few others.

Both together are better than either: docs/course/19-together/together.py.

References: Kneser, Ney 1995, "Improved backing-off for m-gram language modeling"; Chen, Goodman 1999, "An empirical
study of smoothing techniques for language modeling", sections 2.6, 2.7 and 4.1.6. Their modified form (section 3),
with other discounts for counts of 1, 2, and 3 or more, needs 2.09 bits here.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from extra.gpt.trained import load_trained
from extra.studies.program import program
from gpt.score import score
from tinygrad_lite.config import option
from tinygrad_lite.errors import CheckpointError, CorpusError, OptionError, UserError, counted
from training.cli.console import run_command, say, show
from training.corpora.texts import RECIPES, Corpus, load_corpus
from training.family import Trained

OUT = Path("out")
HINTS = {"mix": "is a program of its own: python docs/course/19-together/together.py MODEL"}
MAX_ORDER = 10  # each further order needs memory for almost as many new n-grams as the text has characters


@dataclass
class TextOptions:
    """Which text is predicted."""

    dataset: str = option("goethe", "text, by name: " + ", ".join(RECIPES))
    text: list[str] = option([], "files to take instead: any UTF-8 text", is_path=True)


@dataclass
class BaselineOptions(TextOptions):
    """The options of `python -m extra.studies.baselines`."""

    orders: str = option("1-6", "orders of the n-gram models: one, or first-last", unit="characters")
    checkpoint: str = option("", "model to compare with; empty: the newest under out/ that learned from this text")
    stride: int = option(
        0, "evaluate the GPT in overlapping windows too, which begin N tokens apart; 0: no", unit="tokens", low=0
    )


# --- n-grams --------------------------------------------------------------------------------------------------


class Level:
    """What the formula of idea 1 needs at one order: counts, their sums by context, and the discount.

    Args:
        counts: n-grams, all of one length, with their counts c or c'.
    """

    def __init__(self, counts: Counter[str]) -> None:
        self.counts = counts  # c(hw)
        self.followers = Counter(gram[:-1] for gram in counts)  # N(h·)
        self.totals = Counter(gram[:-1] for gram in counts.elements())  # c(h·)
        self.discount = estimate_discount(counts)


def estimate_discount(counts: Counter[str]) -> float:
    """D = n1 / (n1 + 2 n2); 1/2 if n1 or n2 is 0, because such a small table says nothing about D.

    So always 0 < D < 1: with D = 0 nothing would be left for what was never seen.

    >>> estimate_discount(Counter(ba=2, ar=2, rb=1, ra=1)), estimate_discount(Counter("barbara"))
    (0.3333333333333333, 0.5)
    """
    how_many = Counter(counts.values())
    once, twice = how_many[1], how_many[2]
    return once / (once + 2 * twice) if once and twice else 0.5


def count_grams(text: str, length: int) -> Counter[str]:
    """How often each sequence of N characters occurs.

    >>> count_grams("barbara", 2)
    Counter({'ba': 2, 'ar': 2, 'rb': 1, 'ra': 1})
    """
    return Counter(text[start : start + length] for start in range(len(text) - length + 1))


class KneserNey:
    """A character n-gram model with interpolated Kneser-Ney smoothing.

    Args:
        text: what to learn from.
        order: n; the context has n - 1 characters.
        vocab_size: V, how many different characters there can be, those missing from the text included.
    """

    def __init__(self, text: str, order: int, vocab_size: int) -> None:
        self.order, self.vocab_size = order, vocab_size
        # Each distinct (k + 1)-gram is one character before one k-gram: leave that character out and count.
        lower = [Counter(gram[1:] for gram in count_grams(text, k + 1)) for k in range(1, order)]
        self.levels = [Level(counts) for counts in (*lower, count_grams(text, order))]

    def probability(self, character: str, context: str) -> float:
        """P(character | context), from the bottom up: 1 / V, then with 0, 1, ..., n - 1 characters of context.

        Args:
            context: the characters before, of which the last n - 1 count; there may be fewer, at the start of a text.
        """
        p = 1 / self.vocab_size
        for length, level in enumerate(self.levels[: len(context) + 1]):
            h = context[len(context) - length :]
            total = level.totals[h]
            if total == 0:  # then no longer context that ends in h was followed by anything either
                break
            kept = max(level.counts[h + character] - level.discount, 0.0)
            p = (kept + level.discount * level.followers[h] * p) / total
        return p

    def probabilities(self, text: str) -> np.ndarray:
        """P of all characters except the first, which the GPT, too, reads and does not predict: (N,) -> (N - 1,)."""
        return np.array([self.probability(text[i], text[max(0, i - self.order + 1) : i]) for i in range(1, len(text))])

    def bits_per_character(self, text: str) -> float:
        """Mean of -log2 P over all characters except the first."""
        return -float(np.log2(self.probabilities(text)).mean())

    def size(self) -> int:
        """How many counts the model keeps."""
        return sum(len(level.counts) for level in self.levels)


def token_text(tokens: Sequence[int]) -> str:
    """Tokens as a text in which each token is one character, so that an n-gram model of characters can count them.

    >>> token_text([72, 97])
    'Ha'
    """
    return "".join(map(chr, tokens))


# --- the GPT next to them -------------------------------------------------------------------------------------


def find_gpt(named: str, corpus: Corpus) -> Trained | None:
    """The GPT in the named checkpoint (a file, or a run's folder), or else the newest that learned from this text.

    Raises: CheckpointError if the named one is missing, damaged, or learned from another text.
    """
    if named:
        return load_gpt(Path(named), corpus)
    found = sorted(OUT.glob("**/*.safetensors"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    for folder in dict.fromkeys(path.parent for path in reversed(found)):
        try:
            return load_gpt(folder, corpus)
        except UserError as error:
            say(f"note: left out: {error}")
    return None


def load_gpt(path: Path, corpus: Corpus) -> Trained:
    """Read a checkpoint, and refuse one of another text: it may have learned what is held out here."""
    trained = load_trained(path)
    if trained.corpus_sha256 != corpus.sha256:
        what = f"{trained.path} did not learn from {corpus.name}"
        raise CheckpointError(f"{what}; name its own text with --dataset or --text")
    return trained


# --- the command ----------------------------------------------------------------------------------------------


@program("extra.studies.baselines", BaselineOptions, hints=HINTS)
def main(options: BaselineOptions) -> None:
    """Bits per character of n-gram models with Kneser-Ney smoothing, and of a GPT, on held-out text."""
    orders = read_orders(options.orders)
    corpus = load_corpus(options.dataset, files=options.text)
    train, held_out = cut(corpus)
    gpt = find_gpt(options.checkpoint, corpus)
    say(f"{counted(len(train), 'character')} to learn from, {len(held_out):,} held out")
    print_header()
    vocab_size = len(set(corpus.text))
    print_row("uniform", "none", 1, math.log2(vocab_size))
    for order in orders:
        ngrams = KneserNey(train, order, vocab_size)
        context = counted(order - 1, "character")
        print_row(f"{order}-gram", context, ngrams.size(), ngrams.bits_per_character(held_out))
    if gpt is None:
        say(f"no GPT under {OUT}/ learned from this text; train one with: python train.py")
        return
    model, block = gpt.make_model(), gpt.config.block_size
    for stride in sorted({0, options.stride}):
        found = score(model, gpt.tokenizer, replace(corpus, text=held_out), stride)
        context = f"{block - stride + 1} to {counted(block, 'token')}" if stride else counted(block, "token")
        print_row("strided" if stride else "GPT", context, model.num_parameters(), found.bits_per_character)
    say(f"GPT: {gpt.about}")


def read_orders(text: str) -> range:
    """The orders that "6" or "1-6" names.

    Raises: OptionError if it names none.
    """
    match = re.fullmatch(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", text.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last <= MAX_ORDER:
        raise OptionError(f"--orders {text}: write one order such as 6, or a range such as 1-6, from 1 to {MAX_ORDER}")
    return range(first, last + 1)


def cut(corpus: Corpus) -> tuple[str, str]:
    """What is learned from and what is held out, as in training.

    Raises: CorpusError if nothing is left to predict.
    """
    train, held_out = corpus.split()
    if len(held_out) < 2:
        what = f"the text is too short: of its {counted(len(corpus.text), 'character')} {len(held_out)} are held out"
        raise CorpusError(f"{what}, and it takes at least 2 to predict one from the other; take a longer text")
    return train, held_out


def print_header() -> None:
    """The first line of the table."""
    show(f"{'model':<12} {'context':>16} {'numbers':>12} {'bits per character':>20}")


def print_row(name: str, context: str, numbers: int, bits: float) -> None:
    """One line of the table."""
    show(f"{name:<12} {context:>16} {numbers:>12,} {bits:>20.3f}")


if __name__ == "__main__":
    run_command("extra.studies.baselines", main)
