"""The settings of the translation model."""

from dataclasses import MISSING, dataclass
from typing import ClassVar

from tinygrad_lite.config import MAX_VOCAB_SIZE, ModelConfig, option, part, recompute_option, under

of_model, of_training = under("model", "training")
# Settings that only one kind of model has: the Transformer, and the model of recurrent layers.
TRANSFORMERS = "norm_first activation positions norm norm_weight norm_eps qk_norm attention_scale recompute n_inner"
RECURRENTS = "attend score attention_reach input_feeding"
FOR_NEAR = ("score", "attention_reach")  # what those decoders read that look near a place


@dataclass(frozen=True)
class Seq2SeqConfig(ModelConfig):
    """The settings of an encoder-decoder. A new setting needs only a field here: see `tinygrad_lite/config.py`."""

    vocab_size: int = option(MISSING, "V, size of the vocabulary of both languages", low=1, high=MAX_VOCAB_SIZE)
    pad: int = option(MISSING, "id of the padding token", low=0, high=MAX_VOCAB_SIZE)
    bos: int = option(MISSING, "id of the token that begins every translation", low=0, high=MAX_VOCAB_SIZE)
    eos: int = option(MISSING, "id of the token that ends it", low=0, high=MAX_VOCAB_SIZE)
    n_layer: int = of_model(3, "blocks in the encoder, and in the decoder", low=1, high=1000)
    n_head: int = of_model(4, "attention heads per block", low=1)
    n_embd: int = of_model(256, "width of the model; a multiple of n_head", low=1, high=1_000_000)
    n_inner: int = of_model(0, "width inside the feed-forward part; 0: 4 n_embd", low=0, high=10_000_000)
    block_size: int = of_model(256, "longest sentence", unit="tokens", low=4, high=1_000_000)
    bias: bool = of_model(True, "whether linear maps and norms have a bias")
    norm_first: bool = part("norm_first")
    activation: str = part("activation", "relu")
    positions: str = of_model(
        "sinusoidal",
        "how positions are encoded; rotary: attention rotates queries and keys by their positions",
        choices=("sinusoidal", "learned", "rotary"),
    )
    norm: str = part("norm")
    norm_weight: bool = part("norm_weight")
    norm_eps: float = part("norm_eps")
    qk_norm: bool = part("qk_norm")
    attention_scale: float | None = part("attention_scale")
    zero_init: bool = part("zero_init")
    dropout: float = of_training(0.1, "probability of zeroing an element in training", low=0.0, below=1.0)
    recompute: bool = recompute_option()
    label_smoothing: float = of_training(0.1, "probability spread over all tokens", low=0.0, below=1.0)

    mixer: str = of_model(
        "attention", "the Transformer, or Luong's model of recurrent layers", choices=("attention", "rnn", "lstm")
    )
    attend: str = of_model(
        "global",
        "where recurrent decoders look: nowhere, at the whole source, near the same place, or near one they predict",
        choices=("none", "global", "monotonic", "predictive"),
    )
    score: str = of_model("general", "how they compare states with the source", choices=("dot", "general", "additive"))
    attention_reach: int = of_model(10, "D, how far they look from that place", unit="tokens", low=1, high=1_000_000)
    input_feeding: bool = of_model(False, "whether they read what they found at the last step")

    length_penalty: float = of_training(
        0.6, "exponent that favours longer translations in a beam search; 0: none", low=0.0, high=10.0
    )

    ALWAYS: ClassVar[frozenset[str]] = frozenset(
        ("vocab_size", "pad", "bos", "eos", "n_layer", "n_head", "n_embd", "n_inner", "block_size", "bias")
        + ("norm_first", "activation", "positions", "dropout", "label_smoothing")
    )

    READERS: ClassVar = {"attend": {"global": ("score",)} | dict.fromkeys(("monotonic", "predictive"), FOR_NEAR)}
    CACHES: ClassVar[int] = 2  # of a layer: for its own positions, and for those of the source

    def misfit(self, mark: str = "") -> str:
        """Which settings contradict each other, in words; empty if none do."""
        others = TRANSFORMERS if self.is_recurrent else RECURRENTS
        if foreign := [name for name in others.split() if getattr(self, name) != self.chosen()[name].default]:
            has = "the Transformer" if self.is_recurrent else "models of recurrent layers"
            return f"{mark}{foreign[0]} is a setting of {has}, not of {mark}mixer {self.mixer}"
        if self.input_feeding and self.attend == "none":
            return f"{mark}input_feeding feeds what attention found, and {mark}attend none finds nothing"
        return super().misfit(mark)

    def activations(self, batch_tokens: int) -> int:
        """An estimate of the numbers that a training micro-step keeps for its backward pass.

        It counts the arrays that each layer's derivatives keep, as `GPTConfig.activations` does, for equally long
        source and target; the attention weights of sentences are few. tests/test_train.py compares it with the memory
        that a step takes.
        """
        c, attention, hidden = self.n_embd, self.kept_attention, self.kept_hidden
        if self.is_recurrent:
            return batch_tokens // 2 * (self.n_layer * 2 * attention + 6 * c + self.vocab_size)
        encoder = self.of_all_blocks(self.n_layer, 2 * c + attention + hidden)
        decoder = self.of_all_blocks(self.n_layer, 3 * c + 2 * attention + hidden)
        return batch_tokens // 2 * (encoder + decoder + 2 * c + self.vocab_size)
