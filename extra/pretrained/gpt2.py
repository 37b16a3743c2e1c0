"""The names of GPT-2 in Hugging Face's layout, and ours: settings and weights, in both directions.

GPT-2 has the same layers as our GPT with bias=True. Its files differ from ours in two ways:

    orientation    a linear map is stored as (in, out), y = x W + b; ours as (out, in), y = x W^T + b
    packing        queries, keys and values are one map h.N.attn.c_attn, (C, 3C); ours are three maps, (C, C)

Reference: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.
Format: the class GPT2LMHeadModel of https://huggingface.co/docs/transformers.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from extra.gpt.config import GPTConfig
from extra.pretrained.layout import DECODER, Layout
from extra.tokenizers.huggingface import HFTokenizer
from gpt.model import GPT
from training.model_config import read_model_config

# What makes our GPT a GPT-2.
FIXED = {"dropout": 0.0, "bias": True, "positions": "learned"}
# The values of settings that a config.json omits: the sizes of GPT-2 small, and parts of a block.
DEFAULTS = {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}
DEFAULTS |= {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}


class GPT2Layout(Layout):
    """Settings and weights of GPT-2."""

    titles: ClassVar = {"gpt2": "GPT-2"}
    model = GPT
    read_tokenizer = HFTokenizer.from_folder
    settings: ClassVar = {name: name for name in ("vocab_size", "n_layer", "n_head", "n_embd", "n_inner")}
    settings |= {"block_size": "n_positions", "activation": "activation_function", "norm_eps": "layer_norm_epsilon"}
    required: ClassVar = DECODER | {"tie_word_embeddings": True}
    required |= {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False}
    # Dropout, settings of another head, and those of older versions.
    others: ClassVar = {
        *"embd_pdrop attn_pdrop resid_pdrop reorder_and_upcast_attn n_ctx n_special predict_special_tokens".split(),
        *"summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout".split(),
    }
    blocks = "h"
    parts: ClassVar = {
        "mixer_norm": "ln_1",
        **dict.fromkeys(("mixer.query", "mixer.key", "mixer.value"), "attn.c_attn"),
        "mixer.output": "attn.c_proj",
        "mlp_norm": "ln_2",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
    }
    outside: ClassVar = {"token_embedding": "wte", "position_embedding": "wpe", "final_norm": "ln_f"}
    prefix = "transformer."
    transposed = "c_"
    tied = ("lm_head.weight", "wte.weight")
    buffers = r"h\.\d+\.attn\.(bias|masked_bias)"  # the causal mask, which older files store like a weight
    in_weights: ClassVar = {"bias": True}  # a bias of zeros is equivalent to no bias

    def own_config(self, theirs: Mapping[str, Any]) -> GPTConfig:
        """Our settings; those that are omitted are GPT-2 small's."""
        theirs = DEFAULTS | theirs
        settings = FIXED | self.own_settings(theirs, optional=("n_inner",))
        return read_model_config(GPTConfig, settings | {"n_inner": settings["n_inner"] or 0})

    def their_config(self, config: GPTConfig) -> dict[str, Any]:
        """Our settings under GPT-2's names."""
        return {
            **self.their_settings("gpt2", "GPT2LMHeadModel", config, n_inner=config.n_inner or None),
            **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), config.dropout),
            "tie_word_embeddings": True,
        }


LAYOUT = GPT2Layout()
