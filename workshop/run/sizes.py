"""Models by name that nobody trains here, as data: `python train.py gpt3 --dry_run` says what they would cost.

Each has the options of its family, like a preset. If a training run was published with its time and hardware, these are
shown next to the operations that are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Published:
    """What a training run took, according to its authors.

    Attributes:
        hours: processor hours, summed over all processors.
        how: the same in words.
        capacity: floating-point operations per second of one processor, according to them or its manufacturer.
        source: where this is published.
        watts: power of one processor; 0: not published.
    """

    hours: float
    how: str
    capacity: float
    source: str
    watts: float = 0.0

    @property
    def operations(self) -> float:
        """Time x capacity: what the processors could have computed in that time."""
        return self.hours * 3600 * self.capacity


@dataclass(frozen=True)
class NamedSize:
    """A model with a known shape.

    Attributes:
        about: one line for --help.
        options: values of the options of train.py, "family" among them unless it is the GPT.
    """

    about: str
    options: Mapping[str, Any]
    published: Published | None = None


# Radford et al. 2019, table 2. The paper does not say how long they were trained; these are the steps with which
# nanoGPT (config/train_gpt2.py) retrained the smallest.
GPT2 = {"tokenizer": "bpe", "vocab_size": 50257, "block_size": 1024, "bias": True, "activation": "gelu_tanh"}
GPT2 |= {"batch_size": 12, "gradient_accumulation_steps": 40, "max_iters": 600_000, "workers": 1}
GPT2 |= {"learning_rate": 6e-4, "min_lr": 6e-5, "warmup_iters": 2000, "beta2": 0.95, "eval_interval": 1000}

# Brown et al. 2020 (arXiv:2005.14165), table 2.1: 300 billion tokens in batches of 3.2 million. In every second layer
# attention is sparse there, which is not counted.
GPT3 = GPT2 | {"n_layer": 96, "n_head": 96, "n_embd": 12288, "block_size": 2048, "learning_rate": 6e-5, "min_lr": 6e-6}
GPT3 |= {"batch_size": 1, "gradient_accumulation_steps": 1536, "max_iters": 95_367, "warmup_iters": 119}

# Vaswani et al. 2017 (arXiv:1706.03762), table 3 and section 5: 25,000 source and 25,000 target tokens in a batch.
BASE = {"family": "seq2seq", "tokenizer": "bpe", "vocab_size": 37000, "n_layer": 6, "n_head": 8, "n_embd": 512}
BASE |= {"norm_first": False, "batch_tokens": 6250, "gradient_accumulation_steps": 8, "max_iters": 100_000}
BASE |= {"optimizer": "adam", "schedule": "inverse_square_root", "warmup_iters": 4000, "learning_rate": 7e-4}
BASE |= {"workers": 1, "eval_interval": 1000}
BIG = BASE | {"n_head": 16, "n_embd": 1024, "max_iters": 300_000, "learning_rate": 4.9e-4, "dropout": 0.3}

# Llama 3 (Grattafiori et al. 2024, arXiv:2407.21783, table 3; its model card for tokens, hours and power): 15 trillion
# tokens. The size of a batch is not published for these two; 1,024 sequences are assumed.
LLAMA3 = {"tokenizer": "bpe", "vocab_size": 128_256, "block_size": 8192, "norm": "rmsnorm", "positions": "rotary"}
LLAMA3 |= {"rope_theta": 500_000.0, "activation": "swiglu", "tie_weights": False, "n_kv_head": 8, "beta2": 0.95}
LLAMA3 |= {"batch_size": 1, "gradient_accumulation_steps": 1024, "max_iters": 1_788_139, "warmup_iters": 8000}
LLAMA3 |= {"workers": 1, "learning_rate": 3e-4, "eval_interval": 1000}

PAPER_2017 = "Vaswani et al. 2017, section 6.1 and its footnote"
MODEL_CARD = "the model card of Llama 3; capacity of the H100 SXM in bfloat16 by its data sheet"

SIZES = {
    "gpt2": NamedSize("GPT-2, the smallest", GPT2 | {"n_layer": 12, "n_head": 12, "n_embd": 768}),
    "gpt2-medium": NamedSize("GPT-2 medium", GPT2 | {"n_layer": 24, "n_head": 16, "n_embd": 1024}),
    "gpt2-large": NamedSize("GPT-2 large", GPT2 | {"n_layer": 36, "n_head": 20, "n_embd": 1280}),
    "gpt2-xl": NamedSize("GPT-2 XL, the GPT-2 of the paper", GPT2 | {"n_layer": 48, "n_head": 25, "n_embd": 1600}),
    "gpt3": NamedSize("GPT-3, 175 billion parameters", GPT3),
    "transformer-base": NamedSize(
        "the base Transformer of 2017, English to German",
        BASE,
        Published(8 * 12, "8 P100 x 12 h", 9.5e12, PAPER_2017),
    ),
    "transformer-big": NamedSize(
        "the big Transformer of 2017, English to German",
        BIG,
        Published(8 * 3.5 * 24, "8 P100 x 3.5 days", 9.5e12, PAPER_2017),
    ),
    "llama3-8b": NamedSize(
        "Llama 3 with 8 billion parameters",
        LLAMA3 | {"n_layer": 32, "n_head": 32, "n_embd": 4096, "n_inner": 14336},
        Published(1.3e6, "1.3 million hours of an H100", 989e12, MODEL_CARD, 700),
    ),
    "llama3-70b": NamedSize(
        "Llama 3 with 70 billion parameters",
        LLAMA3 | {"n_layer": 80, "n_head": 64, "n_embd": 8192, "n_inner": 28672},
        Published(6.4e6, "6.4 million hours of an H100", 989e12, MODEL_CARD, 700),
    ),
}
