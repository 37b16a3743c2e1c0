"""The settings of the GPT with all parts that the shelf offers, so that it can also be a Llama, a Qwen or an LSTM."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import extra.mixers  # noqa: F401 (whose parts of a block enter the engine's tables)
from gpt import config as core
from gpt.config import of_model
from tinygrad_lite.config import part, recompute_option
from tinygrad_lite.transformer import MIXERS, rotary_frequencies


@dataclass(frozen=True)
class GPTConfig(core.GPTConfig):
    """The settings of a GPT."""

    norm_eps: float = part("norm_eps")
    n_inner: int = of_model(0, "width inside the feed-forward part; 0: 4 n_embd", low=0, high=10_000_000)
    rope_theta: float = of_model(10000.0, "base of the frequencies of rotary positions", above=0.0, high=1e12)
    rope_scaling: str | None = of_model(
        None, "Llama 3's lowering of these frequencies: FACTOR,LOW,HIGH,LENGTH, as in 32,1,4,8192; none: as they are"
    )
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

    READERS: ClassVar = {"positions": {"rotary": ("rope_theta", "rope_scaling")}}

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
        frequencies = np.array(rotary_frequencies(self.head_width, self.rope_theta))
        if self.rope_scaling is not None:
            factor, low, high, length = self.rope_scaling_numbers
            turns = length * frequencies / (2 * math.pi)
            kept = ((turns - low) / (high - low)).clip(0, 1)
            frequencies = kept * frequencies + (1 - kept) * frequencies / factor
        return tuple(frequencies.tolist())

    def misfit(self, mark: str = "") -> str:
        """Which settings contradict each other, in words; empty if none do."""
        if self.n_head % (self.n_kv_head or 1):
            return (
                f"{mark}n_head {self.n_head} is not a multiple of {mark}n_kv_head {self.n_kv_head}: "
                "every head of keys and values serves the same number of queries"
            )
        if self.n_state is not None and not self.is_recurrent:
            recurrent = " or ".join(name for name, mixer in MIXERS.items() if "n_state" in mixer.reads)
            return f"{mark}n_state is the width of a recurrent state: it needs {mark}mixer {recurrent}"
        try:
            _ = self.rope_scaling_numbers
        except ValueError:
            return (
                f"{mark}rope_scaling {self.rope_scaling} is not FACTOR,LOW,HIGH,LENGTH with FACTOR and LENGTH of at "
                "least 1 and 0 < LOW < HIGH"
            )
        return super().misfit(mark)
