"""A label for each word: which words of lower-cased Goethe have a capital letter?

    python docs/course/17-encoders/tagging.py            from out/bert-goethe, after python train.py bert-goethe
    python docs/course/17-encoders/tagging.py --spans    questions, whose answers are to be found in a text

German writes nouns with a capital, so this is a tagging task whose labels cost nothing: *leben* is a verb in "wir
leben", and a noun in "das Leben". A linear map reads the vector of each word's last token. All weights learn, from
those of a BERT and from random ones. The baseline gives each word the form in which the training text has it most
often, none if the word is new, and a capital after a full stop.

--spans is a made-up task: two facts of the small world of `extra/chat/`, and a question about one. Two linear maps
score each token as the first of the answer, and as the last. No fact of the test occurs in training.
"""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from extra.chat.conversations import facts, sentences
from extra.encoders.bert import Bert
from extra.encoders.family import BERT
from extra.encoders.words import with_marks
from text.tokenizers.base import Tokenizer
from tinygrad_lite import Tensor, manual_seed, no_grad
from tinygrad_lite import functional as F
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from tinygrad_lite.generator import pad_rows
from tinygrad_lite.nn import Linear, Module
from tinygrad_lite.optim import AdamW
from training.cli.command_line import read_command
from training.cli.console import run_command
from training.corpora.texts import load_corpus

BATCH, RATE, LENGTH, TESTED = 16, 1e-3, 60, 300
KINDS = ("capital", "opposite", "author")
UNUSED = ("bert.transform", "bert.lm_head.bias", "bert.pooler", "bert.next_head", "bert.label_head")  # by these tasks


@dataclass
class TaggingOptions:
    """The options of the experiment."""

    spans: bool = option(False, "find answers in a text instead")
    examples: int = option(300, "pieces of text, about, or questions, to learn from", low=1)
    max_iters: int = option(300, "updates", low=1)
    seed: int = option(1337, "random seed", low=0)


@dataclass
class Row:
    """A sequence.

    Attributes:
        ids, segments: (T,).
        places: of the tokens that have a target; None if places are the targets.
        targets: 0 or 1 for each of them, or the first and the last place of the answer.
    """

    ids: np.ndarray
    segments: np.ndarray
    places: np.ndarray | None
    targets: np.ndarray


class Tagger(Module):
    """A BERT with a linear map: two numbers for each token."""

    def __init__(self, bert: Bert) -> None:
        self.bert, self.head = bert, Linear(bert.config.n_embd, 2)

    def read(self, rows: list[Row]) -> tuple[Tensor, np.ndarray]:
        """Logits and targets: of words (N, 2); or of places as the first of the answer, then as the last, (2 B, T)."""
        ids, segments = (pad_rows([getattr(row, name) for row in rows], 0) for name in ("ids", "segments"))
        x, targets = self.head(self.bert(Tensor(ids), Tensor(segments))), [row.targets for row in rows]
        if rows[0].places is None:
            return Tensor.cat(x[:, :, 0], x[:, :, 1], axis=0), np.transpose(targets).ravel()
        places = np.concatenate([row.places + n * ids.shape[1] for n, row in enumerate(rows)])
        return F.embedding(Tensor(places), x.reshape(-1, 2)), np.concatenate(targets)


def tagged(tokenizer: Tokenizer, text: str) -> list[Row]:
    """Pieces of a lower-cased text; the last token of each word has a target: 1 if the word had a capital."""
    rows, ids, places, targets, end = [], [], [], [], 0
    for word in re.finditer(r"\w+", text):
        piece = tokenizer.encode(text[end : word.end()].lower())
        if len(ids) + len(piece) > LENGTH and places:
            rows.append(Row(*with_marks(tokenizer, [ids]), np.array(places), np.array(targets)))
            ids, places, targets = [], [], []
        ids += piece
        places.append(len(ids))  # one more than its index, since [CLS] comes first
        targets.append(int(word[0][0].isupper()))
        end = word.end()
    return rows


def asked(tokenizer: Tokenizer, part: int, count: int, seed: int) -> list[Row]:
    """Questions, each with two facts of the even (part 0) or odd ones, that fit into the model."""
    rng, rows = np.random.default_rng((seed, part)), []
    known = {kind: facts(kind, "known", "de")[part::2] for kind in KINDS}
    while len(rows) < count:
        ids, questions, answers = [], [], []
        for kind in rng.choice(KINDS, 2):
            x, y = known[kind][rng.integers(len(known[kind]))]
            before, after = sentences(kind, "de", "answer")[0].format(x=x, y="|").split(" |")
            ids += tokenizer.encode(f" {before}")
            answer = tokenizer.encode(f" {y}")
            answers.append((len(ids), len(ids) + len(answer) - 1))
            ids += answer + tokenizer.encode(after)
            questions.append(tokenizer.encode(sentences(kind, "de", "train")[0].format(x=x)))
        chosen = rng.integers(2)
        both, segments = with_marks(tokenizer, [questions[chosen], ids])
        if len(both) <= LENGTH + 2:
            rows.append(Row(both, segments, None, np.array(answers[chosen]) + len(questions[chosen]) + 2))
    return rows


def fitted(tagger: Tagger, rows: list[Row], options: TaggingOptions) -> Tagger:
    """The model after some updates on random rows, at a rate that falls to 0."""
    used = [parameter for name, parameter in tagger.named_parameters() if not name.startswith(UNUSED)]
    optimizer, rng = AdamW(used, lr=RATE), np.random.default_rng(options.seed)
    for step in range(options.max_iters):
        logits, targets = tagger.read([rows[n] for n in rng.integers(len(rows), size=BATCH)])
        optimizer.lr = RATE * (1 - step / options.max_iters)
        optimizer.zero_grad()
        F.cross_entropy(logits, Tensor(targets)).backward()
        optimizer.step()
    return tagger.eval()


def are_right(tagger: Tagger, rows: list[Row]) -> np.ndarray:
    """Which targets the model gets right; of an answer, the first place and the last together."""
    right = []
    with no_grad():
        for first in range(0, len(rows), BATCH):
            logits, targets = tagger.read(rows[first : first + BATCH])
            hits = logits.numpy().argmax(-1) == targets
            right.append(hits.reshape(2, -1).all(axis=0) if rows[0].places is None else hits)
    return np.concatenate(right)


def baseline(train: str, test: str) -> tuple[np.ndarray, np.ndarray]:
    """Which words counting gets right, and which are hard: new, or one in ten or more stands in the other form."""
    counts = {True: Counter(), False: Counter()}
    for before, word in re.findall(r"(\W*)(\w+)", train):
        if not re.search("[.!?]", before):
            counts[word[0].isupper()][word.lower()] += 1
    right, hard = [], []
    for before, word in re.findall(r"(\W*)(\w+)", test):
        upper, lower = (counts[form][word.lower()] for form in (True, False))
        guess = bool(re.search("[.!?]", before)) or upper > lower
        right.append(guess == word[0].isupper())
        hard.append(min(upper, lower) >= (upper + lower) / 10)
    return np.array(right), np.array(hard)


def main(argv: list[str]) -> int:
    """Print the shares that are right."""
    about = "Train a BERT to label each word, or to find answers."
    options, names = read_command(
        TaggingOptions, argv, "python docs/course/17-encoders/tagging.py", about, "CHECKPOINT"
    )
    trained = BERT.read(Path(names[0] if names else "out/bert-goethe"))
    if trained.config.block_size < LENGTH + 2:
        raise OptionError(f"{trained.path} reads {trained.config.block_size} tokens, but {LENGTH + 2} are needed")
    tokenizer, hard = trained.tokenizer, None
    if options.spans:
        train, test = (
            asked(tokenizer, part, options.examples if part == 0 else TESTED, options.seed) for part in (0, 1)
        )
    else:
        texts = load_corpus("goethe").split()
        train, test = (tagged(tokenizer, text) for text in texts)
        train, test = train[:: max(1, len(train) // options.examples)], test[:TESTED]
        right, hard = (each[: sum(len(row.targets) for row in test)] for each in baseline(*texts))
        print(f"{'':<20}all words   hard ones ({hard.mean():.0%})")
        print(f"{'counting':<20}{right.mean():9.1%}{right[hard].mean():12.1%}", flush=True)
    for name in ("random weights", "pretrained"):
        manual_seed(options.seed)
        bert = Bert(trained.config) if name == "random weights" else trained.make_model().train()
        right = are_right(fitted(Tagger(bert), train, options), test)
        print(
            f"{name:<20}{right.mean():9.1%}" + (f"{right[hard].mean():12.1%}" if hard is not None else ""), flush=True
        )
    return 0


if __name__ == "__main__":
    run_command("tagging", main)
