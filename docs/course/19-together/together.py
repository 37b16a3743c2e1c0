"""What do several models know together? Means of their predictions, counts, and learning while reading.

    python docs/course/19-together/together.py out/goethe          a GPT, n-grams of its tokens, and both
    python docs/course/19-together/together.py out/a out/b out/c   three GPTs, the mean of all of them, and n-grams
    python docs/course/19-together/together.py out/a out/b --rates 0.05  GPTs that learn from what they read
    python docs/course/19-together/together.py out/goethe --stride 64  also in overlapping windows (gpt/score.py)

All of them predict the held-out text that the models' runs have not learned from, and the table has bits per character.
The models must have one tokenizer: only then is the next token the same question to all of them.

**The mean of K models.** p(token) = (p_1(token) + ... + p_K(token)) / K sums to 1 over all tokens, as each part does.
How much is gained? For one token, with the logarithm being concave (Jensen's inequality),

    -log mean_k p_k  <=  mean_k (-log p_k)

so the mean is never worse than its parts are on average, and it is better where they disagree. Models that differ only
in their random seed have learned the same text, and what each has learned beyond its regularities is noise: that is
what disagrees.

**Counts.** Counts memorise, the GPT generalises, and they err in different places. n-grams of the GPT's tokens, with
the smoothing of Kneser and Ney (extra/studies/baselines.py), are mixed with the mean of the GPTs:

    p(token) = w p_GPT(token) + (1 - w) p_KN(token),    0 <= w <= 1

**Dynamic evaluation.** A text repeats its own names and words, and a model can learn them as it reads. Each window is
predicted first; then the model takes one step of gradient descent on it, W <- W - rate dL/dW with L its mean loss, and
continues with the next. No token is predicted by a model that has seen it, so the bits are those of an honest
prediction, and a program that decompresses the text could do the same. But at the end the model is no longer the one
that was trained: the numbers are comparable only with others of this kind.

**Who chooses w, the order n and the rate?** Not the training part, which the GPT has half memorised: there w would be
1. So each half of the held-out text is predicted with those that do best on the other half: no token has a say in its
own prediction.

References: Hansen, Salamon 1990, "Neural network ensembles"; Lakshminarayanan et al. 2017 (arXiv:1612.01474), section
2.4, for the mean of probabilities; Krause et al. 2018 (arXiv:1709.07432) and 2019 (arXiv:1904.08378) for dynamic
evaluation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from extra.studies.baselines import (
    KneserNey,
    TextOptions,
    cut,
    load_gpt,
    print_header,
    print_row,
    read_orders,
    token_text,
)
from extra.studies.program import numbers, program
from gpt.data import bits_per_character, characters_each
from gpt.model import GPT
from gpt.score import token_log_probs
from tinygrad_lite import functional as F
from tinygrad_lite.config import option
from tinygrad_lite.errors import CheckpointError, CorpusError, counted
from tinygrad_lite.optim import SGD
from tinygrad_lite.tensor import Tensor
from training.cli.console import run_command, say
from training.corpora.texts import Corpus, load_corpus
from training.family import Trained

GPTS = "GPTs that learned from this text: checkpoints, or folders of runs"
WEIGHTS = np.linspace(0, 1, 101).tolist()  # of the GPTs in a mixture with counts


@dataclass
class TogetherOptions(TextOptions):
    """The options of `python docs/course/19-together/together.py`."""

    orders: str = option("2-5", "orders of the n-gram models: one, or first-last", unit="tokens")
    rates: str = option("", "learning rates of dynamic evaluation to choose from, such as 0.02,0.05; empty: none")
    stride: int = option(
        0, "evaluate the GPTs in overlapping windows too, which begin N tokens apart; 0: no", unit="tokens", low=0
    )


def log_probs_while_learning(model: GPT, tokens: np.ndarray, rate: float) -> np.ndarray:
    """ln p(token) of every token except the first, by a model that learns from each window after predicting it.

    Args:
        tokens: (N,), cut into windows as by `token_log_probs`; for a rate of 0 the results are equal.
    Returns: (N - 1,).
    """
    model.eval()
    optimizer, block, found = SGD(model.named_parameters(), rate), model.config.block_size, []
    for start in range(0, len(tokens) - 1, block):
        window = Tensor(tokens[start : start + block + 1], dtype=np.int64, device=model.token_embedding.weight.device)
        losses = F.cross_entropy(model(window[None, :-1])[0], window[1:], reduction="none")
        found.append(-losses.numpy())
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
    return np.concatenate(found).astype(np.float64)


def mixed(weight: float, p_gpt: np.ndarray, p_counts: np.ndarray) -> np.ndarray:
    """w p_GPT + (1 - w) p_KN."""
    return weight * p_gpt + (1 - weight) * p_counts


def best_for_other_half(choices: Sequence[Any], predict: Callable[[Any], np.ndarray]) -> tuple[np.ndarray, list[Any]]:
    """The probabilities of all tokens, each half with the choice that needs the fewest bits for the other half.

    Args:
        predict: the probabilities (N,) of all tokens with a choice.
    Returns: (N,), and the choices for the first half and for the second.
    """

    def halves(choice: Any) -> list[np.ndarray]:
        p = predict(choice)
        return np.split(p, [len(p) // 2])

    nats = np.array([[-np.log(half).sum() for half in halves(choice)] for choice in choices])
    chosen = [choices[place] for place in nats.argmin(0)[::-1]]
    return np.concatenate([halves(choice)[number] for number, choice in enumerate(chosen)]), chosen


def load_together(names: Sequence[str], corpus: Corpus) -> list[Trained]:
    """The GPTs, which must have learned from this text and have one tokenizer.

    Raises: CheckpointError if not.
    """
    gpts = [load_gpt(Path(name), corpus) for name in names]
    for gpt in gpts:
        if gpt.tokenizer.to_json() != gpts[0].tokenizer.to_json():
            why = f"{gpt.path} has different tokens from {gpts[0].path}, so their predictions have no mean"
            raise CheckpointError(f"{why}: name models whose runs learned the same tokenizer")
        say(gpt.about)
    return gpts


@program("docs/course/19-together/together.py", TogetherOptions, "MODEL ...", "out/goethe", about_positional=GPTS)
def main(options: TogetherOptions, *names: str) -> None:
    """Bits per character of GPTs, of the mean of their predictions, and of both with counts, on held-out text."""
    orders, what = read_orders(options.orders), "learning rates such as 0.02,0.05"
    rates = numbers(options.rates, "--rates", what, lambda rate: rate >= 0) if options.rates else []
    corpus = load_corpus(options.dataset, files=options.text)
    train, held_out = cut(corpus)
    gpts = load_together(names, corpus)
    tokenizer, block = gpts[0].tokenizer, min(gpt.config.block_size for gpt in gpts)
    learned, tokens = (np.array(tokenizer.encode(part)) for part in (train, held_out))
    if len(tokens) < 3:
        raise CorpusError(f"the text is too short: {counted(len(tokens), 'token')} held out, and it takes three")
    say(f"{counted(len(learned), 'token')} to learn from, {len(tokens):,} held out")

    each = characters_each(tokenizer, held_out, tokens)

    def show(name: str, context: str, size: int, p: np.ndarray) -> None:
        print_row(name, context, size, bits_per_character(-float(np.log(p).mean()), each))

    print_header()
    p_counts, counts = {}, {}
    for order in orders:
        ngrams = KneserNey(token_text(learned), order, tokenizer.vocab_size)
        p_counts[order], counts[order] = ngrams.probabilities(token_text(tokens)), ngrams.size()
        show(f"{order}-gram", counted(order - 1, "token"), counts[order], p_counts[order])
    sizes = [GPT.blueprint(gpt.config).num_parameters() for gpt in gpts]

    def predicted(by: Callable[..., np.ndarray], *setting: float) -> np.ndarray:
        """The probabilities of all tokens by each GPT: (K, N)."""
        return np.exp([by(gpt.make_model(), tokens, *setting) for gpt in gpts])

    def show_mixture(name: str, p: np.ndarray) -> None:
        choices = [(weight, order) for order in orders for weight in WEIGHTS]
        both, chosen = best_for_other_half(choices, lambda choice: mixed(choice[0], p, p_counts[choice[1]]))
        size = sum(sizes) + max(counts[order] for _, order in chosen)
        show(name, f"{', '.join(f'{weight:.2f}' for weight, _ in chosen)} GPT", size, both)
        facts = " and ".join(f"{order}-grams with w = {weight:.2f}" for weight, order in chosen)
        say(f"{name}: the halves are mixed with {facts}, which do best on the other half")

    found = predicted(token_log_probs)
    for number, (gpt, size, p) in enumerate(zip(gpts, sizes, found, strict=True), start=1):
        show(f"GPT {number}", counted(gpt.config.block_size, "token"), size, p)
    p_gpt = found.mean(0)
    if len(gpts) > 1:
        show("mean", counted(len(gpts), "GPT"), sum(sizes), p_gpt)
    show_mixture("with counts", p_gpt)
    if options.stride:
        strided = predicted(token_log_probs, options.stride).mean(0)
        show("strided", f"{block - options.stride + 1} to {counted(block, 'token')}", sum(sizes), strided)
    if rates:
        by_rate = {rate: predicted(log_probs_while_learning, rate).mean(0) for rate in rates}
        p_learning, chosen = best_for_other_half(rates, by_rate.get)
        show("learning", f"rate {', '.join(f'{rate:g}' for rate in chosen)}", sum(sizes), p_learning)
        show_mixture("all together", p_learning)


if __name__ == "__main__":
    run_command("together", main)
