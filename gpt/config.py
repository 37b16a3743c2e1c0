"""The settings of the GPT."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass
from typing import ClassVar

from tinygrad_lite.config import MAX_VOCAB_SIZE, ModelConfig, option, part, recompute_option, under
from tinygrad_lite.functional.attention import ROW_BLOCK
from tinygrad_lite.transformer import MIXERS, POSITIONS, rotary_frequencies

of_model, of_training = under("model", "training")


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
    norm_eps: float = part("norm_eps")
    n_inner: int = of_model(0, "width inside the feed-forward part; 0: 4 n_embd", low=0, high=10_000_000)
    norm: str = part("norm")
    norm_weight: bool = part("norm_weight")
    rope_theta: float = of_model(10000.0, "base of the frequencies of rotary positions", above=0.0, high=1e12)
    rope_scaling: str | None = of_model(
        None, "Llama 3's lowering of these frequencies: FACTOR,LOW,HIGH,LENGTH, as in 32,1,4,8192; none: as they are"
    )
    qk_norm: bool = part("qk_norm")
    attention_scale: float | None = part("attention_scale")
    n_kv_head: int | None = of_model(
        None, "heads of keys and values, which n_head is a multiple of; none: n_head", low=1
    )
    head_dim: int | None = of_model(None, "width of a head; none: n_embd / n_head", low=1, high=1_000_000)
    mixer: str = of_model("attention", "what mixes positions: attention or another layer", choices=MIXERS)
    n_state: int | None = of_model(None, "width of a recurrent layer's state; none: n_embd", low=1, high=1_000_000)
    window: int | None = of_model(
        None, "how many keys attention sees, and the first few; none: all", unit="tokens", low=1, high=10_000_000
    )
    norm_first: bool = part("norm_first")
    residual: bool = of_model(True, "add the input of each part of a block to its output")
    recompute: bool = recompute_option()
    zero_init: bool = part("zero_init")
    tie_weights: bool = of_model(True, "one matrix for tokens at the input and at the output")

    ALWAYS: ClassVar[frozenset[str]] = frozenset(
        ("vocab_size", "block_size", "n_layer", "n_head", "n_embd", "dropout", "bias", "positions")
    )

    @property
    def rope_scaling_numbers(self) -> tuple[float, ...]:
        """The numbers of rope_scaling; none if it is not set. ValueError if they are invalid, or not four."""
        numbers = tuple(float(word) for word in (self.rope_scaling or "").split(",") if self.rope_scaling)
        if self.rope_scaling is not None:
            factor, low, high, length = numbers
            if not (1 <= factor < math.inf and 0 < low < high < math.inf and 1 <= length < math.inf):
                raise ValueError("out of range")
        return numbers

    @property
    def frequencies(self) -> tuple[float, ...]:
        """The angles by which rotary positions turn the D/2 pairs of a head.

        With `rope_scaling` they are lowered as in Llama 3, whose context was extended from LENGTH tokens to a multiple
        of it: pairs that turned at most LOW times within LENGTH now turn FACTOR times slower; those that turned at
        least HIGH times, and so distinguish neighbours, are unchanged; in between, the two are interpolated.

        Reference: `_compute_llama3_parameters` of transformers.
        """
        frequencies = list(rotary_frequencies(self.head_width, self.rope_theta))
        if self.rope_scaling is not None:
            factor, low, high, length = self.rope_scaling_numbers
            for i, frequency in enumerate(frequencies):
                turns = length * frequency / (2 * math.pi)
                kept = min(1.0, max(0.0, (turns - low) / (high - low)))
                frequencies[i] = kept * frequency + (1 - kept) * frequency / factor
        return tuple(frequencies)

    def misfit(self, mark: str = "") -> str:
        """Which settings contradict each other, in words; empty if none do."""
        if self.n_head % (self.n_kv_head or 1):
            return (
                f"{mark}n_head {self.n_head} is not a multiple of {mark}n_kv_head {self.n_kv_head}: "
                "every head of keys and values serves the same number of queries"
            )
        try:
            _ = self.rope_scaling_numbers
        except ValueError:
            return (
                f"{mark}rope_scaling {self.rope_scaling} is not FACTOR,LOW,HIGH,LENGTH with FACTOR and LENGTH of at "
                "least 1 and 0 < LOW < HIGH"
            )
        return super().misfit(mark)

    def activations(self, batch_size: int) -> int:
        """About how many numbers a training micro-step keeps for its backward pass (fused operations).

        Only what a derivative needs is kept. Per token and block: the outputs of two norms 2 C, queries, keys and
        values 3 H D, attention's output H D, the feed-forward's hidden layer with the slope of GELU 2 F, and for each
        head the attention weights that causality leaves: a little more than half of T, as computed in blocks of rows.
        Dropout keeps a byte for each element that it may drop. With `recompute`, every block keeps its input, and only
        one at a time keeps the rest.
        """
        c, t = self.n_embd, self.block_size
        heads = self.n_head if self.mixer == "attention" else 0
        seen = min((t + min(t, ROW_BLOCK)) // 2, 2 * (self.window or t))
        attention = self.kept_attention + heads * seen
        masks = (2 * c + heads * t) // 4 if self.dropout else 0
        blocks = self.of_all_blocks(self.n_layer, 2 * c + attention + self.kept_hidden + masks)
        return batch_size * self.block_size * (blocks + c + self.vocab_size)
