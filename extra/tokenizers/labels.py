"""The classes of a classifier as a vocabulary: a token for each class, whose text is its name.

This is how a model of pictures, which has no other tokenizer, keeps the names of its classes in its checkpoints.

    >>> tokenizer = LabelTokenizer(["cat", "dog"])
    >>> tokenizer.encode("dog"), tokenizer.decode([0])
    ([1], 'cat')
"""

from collections.abc import Iterable, Sequence

from text.tokenizers.base import Tokenizer, to_utf8
from tinygrad_lite.errors import TokenizerError

MAX_LABEL = 1000  # characters


class LabelTokenizer(Tokenizer):
    """One token for each class.

    Raises: TokenizerError if a name is empty, too long, or given twice.
    """

    kind, parts = "labels", {"labels": list, "specials": list}

    def __init__(self, labels: Sequence[str], specials: Iterable[str] = ()):
        if not all(isinstance(label, str) and 1 <= len(label) <= MAX_LABEL for label in labels):
            raise TokenizerError(f"the name of a class must have 1 to {MAX_LABEL} characters")
        if len(set(labels)) < len(labels):
            raise TokenizerError("two classes have the same name")
        super().__init__([to_utf8(label) for label in labels], specials)
        self.labels = list(labels)

    def encode_text(self, text: str) -> list[int]:
        """The number of a class, in a list.

        Raises: TokenizerError if no class has this name.
        """
        if text not in self.labels:
            raise TokenizerError(f"there is no class {text[:60]!r}, only {', '.join(self.labels[:20])}")
        return [self.labels.index(text)]
