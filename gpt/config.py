"""The settings of the GPT."""

from dataclasses import MISSING, dataclass

from tinygrad_lite.config import MAX_VOCAB_SIZE, ModelConfig, of_model, of_training, option, part
from tinygrad_lite.functional.attention import ROW_BLOCK
from tinygrad_lite.transformer import MIXERS, POSITIONS


@dataclass(frozen=True)
class GPTConfig(ModelConfig):
    """The settings of a GPT. A new setting needs only a field here: see `tinygrad_lite/config.py`."""

    vocab_size: int = option(MISSING, "V, tokens of the vocabulary", low=1, high=MAX_VOCAB_SIZE)
    block_size: int = of_model(64, "longest context", unit="tokens", low=1, high=10_000_000)
    n_layer: int = of_model(4, "blocks", low=1, high=1000)
    n_head: int = of_model(4, "attention heads per block", low=1)
    n_embd: int = of_model(128, "width of the model; a multiple of n_head", low=1, high=1_000_000)
    dropout: float = of_training(0.0, "probability of dropping an element in training", low=0.0, below=1.0)
    bias: bool = of_model(False, "whether linear maps and norms have a bias")
    positions: str = of_model("learned", "how positions are encoded", choices=POSITIONS)
    activation: str = part("activation")
    norm: str = part("norm")
    norm_weight: bool = part("norm_weight")
    qk_norm: bool = part("qk_norm")
    attention_scale: float | None = part("attention_scale")
    zero_init: bool = part("zero_init")
    tie_weights: bool = of_model(True, "one matrix for tokens at the input and at the output")

    ALWAYS = frozenset("vocab_size block_size n_layer n_head n_embd dropout bias positions".split())

    def activations(self, batch_size: int) -> int:
        """About how many numbers a training micro-step keeps for its backward pass (fused operations).

        Only what a derivative needs is kept. Per token and block: the outputs of two norms 2 C, queries, keys and
        values 3 H D, attention's output H D, the feed-forward's hidden layer with the slope of GELU 2 F, and for each
        head the attention weights that causality leaves: a little more than half of T, as computed in blocks of rows.
        Dropout keeps a byte for each element that it may drop. With `recompute`, every block keeps its input, and only
        one at a time keeps the rest.
        """
        c, t = self.n_embd, self.block_size
        heads = self.n_head if MIXERS[self.mixer].attends else 0
        seen = min((t + min(t, ROW_BLOCK)) // 2, 2 * (self.window or t))
        attention = self.kept_attention + heads * seen
        masks = (2 * c + heads * t) // 4 if self.dropout else 0
        blocks = self.of_all_blocks(self.n_layer, 2 * c + attention + self.kept_hidden + masks)
        return batch_size * self.block_size * (blocks + c + self.vocab_size)
