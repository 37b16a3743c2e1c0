"""The settings of the translation model."""

from dataclasses import MISSING, dataclass

from tinygrad_lite.config import MAX_VOCAB_SIZE, ModelConfig, of_model, of_training, option, part, recompute_option


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

    length_penalty: float = of_training(
        0.6, "exponent that favours longer translations in a beam search; 0: none", low=0.0, high=10.0
    )

    ALWAYS = frozenset(
        ("vocab_size", "pad", "bos", "eos", "n_layer", "n_head", "n_embd", "n_inner", "block_size", "bias")
        + ("norm_first", "activation", "positions", "dropout", "label_smoothing")
    )

    CACHES = 2  # of a layer: for its own positions, and for those of the source

    def activations(self, batch_tokens: int) -> int:
        """An estimate of the numbers that a training micro-step keeps for its backward pass.

        It counts the arrays that each layer's derivatives keep, as `GPTConfig.activations` does, for equally long
        source and target; the attention weights of sentences are few. tests/test_train.py compares it with the memory
        that a step takes.
        """
        c, attention, hidden = self.n_embd, self.kept_attention, self.kept_hidden
        encoder = self.of_all_blocks(self.n_layer, 2 * c + attention + hidden)
        decoder = self.of_all_blocks(self.n_layer, 3 * c + 2 * attention + hidden)
        return batch_tokens // 2 * (encoder + decoder + 2 * c + self.vocab_size)
