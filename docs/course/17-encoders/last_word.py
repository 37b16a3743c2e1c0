"""The label as the last word: a GPT and an LSTM learn to continue a review with "good" or "bad".

    python docs/course/17-encoders/last_word.py             three seeds of each
    python docs/course/17-encoders/last_word.py --seeds 1 --max_iters 100

A model that writes needs no head for labels (Radford et al. 2018): after the review and a separator it predicts the
next word, of all in the vocabulary, and only this prediction is learned from. Size, word pieces, data and updates are
those of the encoder in `python train.py classify` from random weights (benchmarks/experiments/labels.toml), for
comparison: two layers, 192 wide, a batch of 32. A text ends with its most probable label's word only if it is the most
probable of all words; the share of the test part for which it is the right one is printed.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from extra.corpora.tables import load_labelled
from extra.encoders.words import CLS, PAD, SEP
from extra.gpt.config import GPTConfig
from extra.studies.program import program
from extra.tokenizers.wordpiece import WordPieceTokenizer
from gpt.model import GPT
from text.tokenizers.base import Tokenizer
from tinygrad_lite import Tensor, manual_seed, no_grad, optim
from tinygrad_lite import functional as F
from tinygrad_lite.config import option
from tinygrad_lite.generator import pad_rows
from training.cli.console import run_command

WORDS = ("bad", "good")  # of the labels 0 and 1
LENGTH, BATCH, RATE, WARMUP, VOCABULARY = 64, 32, 1e-3, 40, 8192
KINDS = {"GPT": {"positions": "rotary"}, "LSTM": {"mixer": "lstm", "positions": "none", "n_state": 107}}
Row = tuple[list[int], int]  # the tokens of a text, and the one that follows


@dataclass
class LastWordOptions:
    """The options of the experiment."""

    seeds: int = option(3, "runs of each model", low=1)
    max_iters: int = option(400, "updates of each model", low=1)


class LastWord(GPT):
    """A GPT that computes logits at one position of each text only."""

    places: Sequence[int]

    def read(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, V)."""
        rows = Tensor(np.arange(len(x)) * x.shape[1] + np.array(self.places))
        return super().read(F.embedding(rows, x.reshape(-1, x.shape[2])))

    def next_words(self, rows: Sequence[Row], pad: int) -> tuple[Tensor, Tensor]:
        """The logits after each text, and the token that follows."""
        self.places = [len(ids) - 1 for ids, _ in rows]
        return self(Tensor(pad_rows([ids for ids, _ in rows], pad))), Tensor(np.array([word for _, word in rows]))


def encoded(tokenizer: Tokenizer, texts: Sequence[tuple[str, int]]) -> list[Row]:
    """Each text between [CLS] and [SEP], and the word of its label."""
    words = [tokenizer.encode(word) for word in WORDS]
    first, last = (tokenizer.specials[name] for name in (CLS, SEP))
    return [([first, *tokenizer.encode(text)[: LENGTH - 2], last], words[label][0]) for text, label in texts]


def fitted(kind: str, train: Sequence[Row], tokenizer: Tokenizer, steps: int, seed: int) -> LastWord:
    """A model that has learned from random texts."""
    manual_seed(seed)
    size = {"n_layer": 2, "n_head": 4, "n_embd": 192, "dropout": 0.2, "block_size": LENGTH}
    model = LastWord(GPTConfig(vocab_size=tokenizer.vocab_size, **size, **KINDS[kind]))
    optimizer = optim.AdamW(optim.decay_groups(model, 0.05))
    rng, order = np.random.default_rng(seed), np.empty(0, int)
    for step in range(steps):
        if len(order) < BATCH:
            order = rng.permutation(len(train))
        chosen, order = order[:BATCH], order[BATCH:]
        optimizer.zero_grad()
        F.cross_entropy(*model.next_words([train[n] for n in chosen], tokenizer.specials[PAD])).backward()
        optimizer.clip_grad_norm(1.0)
        optimizer.lr = optim.cosine(step, RATE, WARMUP, steps, 0.0)
        optimizer.step()
    return model.eval()


def share_right(model: LastWord, rows: Sequence[Row], pad: int) -> float:
    """How many of the texts the model continues with the right word, in percent."""
    right = 0
    with no_grad():
        for first in range(0, len(rows), BATCH):
            logits, words = model.next_words(rows[first : first + BATCH], pad)
            right += int((logits.numpy().argmax(-1) == words.numpy()).sum())
    return 100 * right / len(rows)


@program("docs/course/17-encoders/last_word.py", LastWordOptions)
def main(options: LastWordOptions) -> None:
    """Learn the label of a review as its last word, and print how many test texts are labelled rightly."""
    data = load_labelled("reviews")
    text = "\n".join(text for text, _ in data.train) + "\n" + " ".join(WORDS)
    tokenizer = WordPieceTokenizer.train(text, VOCABULARY, lowercase=True)
    train, test = (encoded(tokenizer, part) for part in (data.train, data.test))
    for kind in KINDS:
        found = []
        for seed in range(1, options.seeds + 1):
            model = fitted(kind, train, tokenizer, options.max_iters, seed)
            found.append(share_right(model, test, tokenizer.specials[PAD]))
        deviation = f" ± {statistics.stdev(found):.1f}" if len(found) > 1 else ""
        each = ", ".join(f"{share:.1f}" for share in found)
        size = model.num_parameters()
        print(f"{kind:5}{size:>10,} parameters: {statistics.mean(found):.1f}{deviation} % right ({each})", flush=True)


if __name__ == "__main__":
    run_command("last_word", main)
