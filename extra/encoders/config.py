"""BERT's settings."""

from dataclasses import MISSING, dataclass
from typing import ClassVar

from tinygrad_lite.config import MAX_VOCAB_SIZE, ModelConfig, of_model, of_training, option, part, recompute_option

MASK_SHARE = 0.15  # of the tokens are to be predicted
LABEL_MARK = "|"  # between the names of labels


@dataclass(frozen=True)
class BertConfig(ModelConfig):
    """The settings of an encoder for text. A new setting is a field here: see `tinygrad_lite/config.py`."""

    vocab_size: int = option(MISSING, "V, tokens of the vocabulary", low=1, high=MAX_VOCAB_SIZE)
    pad: int = option(MISSING, "id of the padding token", low=0, high=MAX_VOCAB_SIZE)
    cls: int = option(MISSING, "id of the token that begins every sequence", low=0, high=MAX_VOCAB_SIZE)
    sep: int = option(MISSING, "id of the token that ends every segment", low=0, high=MAX_VOCAB_SIZE)
    mask: int = option(MISSING, "id of the token that hides a word", low=0, high=MAX_VOCAB_SIZE)
    n_layer: int = of_model(4, "blocks", low=1, high=1000)
    n_head: int = of_model(4, "attention heads per block", low=1)
    n_embd: int = of_model(192, "width of the model; a multiple of n_head", low=1, high=1_000_000)
    n_inner: int = of_model(0, "width inside the feed-forward part; 0: 4 n_embd", low=0, high=10_000_000)
    block_size: int = of_model(128, "longest sequence", unit="tokens", low=8, high=1_000_000)
    segments: int = of_model(2, "segments of a sequence that have an embedding", low=1, high=1000)
    norm_first: bool = of_model(True, "norm before each part of a block; false: after it, as in 2018")
    positions: str = of_model(
        "learned",
        "a vector for each position, as in 2018, or rotated queries and keys, with which small models learn far faster",
        choices=("learned", "rotary"),
    )
    activation: str = part("activation")
    norm_eps: float = part("norm_eps")
    next_sentence: bool = of_model(False, "also learn whether the second segment follows the first in its text")
    dropout: float = of_training(0.1, "probability of dropping an element in training", low=0.0, below=1.0)
    objective: str = of_training(
        "words",
        "what is predicted: hidden words, the label of a text, or nothing",
        choices=("words", "labels", "features"),
    )
    labels: str = of_training("", f"names of the labels, separated by {LABEL_MARK}; empty: those in the data")
    pooling: str = of_training(
        "cls", "what a label is read from: the first token, or the mean of all", choices=("cls", "mean")
    )
    recompute: bool = recompute_option()

    ALWAYS: ClassVar[frozenset[str]] = frozenset(("vocab_size", "n_layer", "n_head", "n_embd", "block_size"))

    @classmethod
    def special_token(cls, name: str) -> str:
        """The name of a special token as BERT writes it: [MASK]."""
        return f"[{name.upper()}]"

    @property
    def label_names(self) -> list[str]:
        """The names of the labels, in the order of their numbers."""
        return self.labels.split(LABEL_MARK) if self.labels else []

    @property
    def has_pooler(self) -> bool:
        """Whether the first token's vector passes through another layer, from which a whole sequence is judged."""
        return self.objective != "words" or self.next_sentence

    def misfit(self, mark: str = "") -> str:
        """Which settings contradict each other, in words; empty if none do."""
        names = self.label_names
        if len(set(names)) < len(names) or "" in names:
            return f"{mark}labels {self.labels!r} must be different names, separated by {LABEL_MARK}"
        if self.objective == "labels" and not (names or mark):
            return "objective labels needs the names of the labels"
        if self.next_sentence and self.segments < 2:
            return f"{mark}next_sentence needs two {mark}segments, not {self.segments}"
        return super().misfit(mark)

    def activations(self, batch_size: int) -> int:
        """About how many numbers a training micro-step keeps for its backward pass, counted as for the GPT."""
        c, t = self.n_embd, self.block_size
        per_token = self.of_all_blocks(self.n_layer, 8 * c + self.n_head * t + self.kept_hidden) + 2 * c
        words = MASK_SHARE * (self.vocab_size + 4 * c) if self.objective == "words" else 0
        return int(batch_size * t * (per_token + words))
