"""A GPT that learned from documents: it begins each with a mark and ends it with one, as a generator of names does.

A document is an answer to nothing (pairs.py): a row has one, alone, from the mark to the mark, and whatever follows the
first mark is to be predicted, also where the document ends:

    ids      | A n n a         | is the mark, a special token
    targets  A n n a |

Rows of similar length share a batch, in another order in each pass. No document is read before another, so a
mark need not mean that everything before it no longer matters.

References: GPT-2, whose mark has the same name; makemore by Andrej Karpathy, where it is a dot.
"""

import re
from collections.abc import Sequence

from extra.gpt.options import DOCUMENTS, GPTOptions
from extra.pairs.answering import MARK
from extra.pairs.pairs import AnswerTask, Pair, PairCorpus
from gpt.data import bits_per_character
from gpt.model import GPT
from gpt.task import drawn
from tinygrad_lite.errors import CorpusError, counted
from training.corpora.divided_pairs import split
from training.corpora.texts import load_corpus
from training.task import Report


class DocumentTask(AnswerTask):
    """Documents to learn from, held-out ones, and documents by the model."""

    unit, measures, item = "character", ("bits_per_char",), "document"

    @staticmethod
    def marked(options: GPTOptions) -> tuple[PairCorpus, tuple[str, ...]]:
        """The documents of a text, without white space around them, a tenth of them held out as of pairs; the mark.

        Raises: CorpusError if there are too few.
        """
        corpus = load_corpus(options.dataset, files=options.text)
        found = [part.strip() for part in re.split(DOCUMENTS[options.documents], corpus.text)]
        pairs = [(text, text) for text in found if text]
        parts = [[("", text) for text, _ in part] for part in split(pairs, len(pairs) // 10)]
        if not all(parts):
            problem = f"{corpus.name} has {counted(len(pairs), 'document')}, too few to hold out a tenth of them"
            raise CorpusError(f"{problem}: use at least 10 different ones, or omit --documents {options.documents}")
        return PairCorpus(corpus.name, *parts), (MARK,)

    def encode(self, pairs: Sequence[tuple[str, str]]) -> list[Pair]:
        """Token ids of the documents, each between two marks."""
        mark = self.tokenizer.specials[MARK]
        return [([], [mark, *self.tokenizer.encode_after(text), mark]) for _, text in pairs]

    def report(self, model: GPT, val_loss: float) -> Report:
        """The loss in bits per character, and documents by the model, or their beginnings.

        Marks are predicted, since where a document ends must be; but they are no characters of it.
        """
        predicted = sum(len(target) - 1 for _, target in self.data.held_out)
        bits = bits_per_character(val_loss, sum(len(text) for _, text in self.sentences) / predicted)
        mark = self.tokenizer.specials[MARK]
        texts = drawn(self.options, self.tokenizer, model, [[mark]] * self.shown, mark) if self.shown else []
        return Report({"bits_per_char": bits}, f"{bits:.3f} bits per character", "\n".join(texts))
