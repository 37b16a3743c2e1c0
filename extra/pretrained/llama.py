"""The names of Llama, Mistral and Qwen in Hugging Face's layout, and ours: settings and weights, in both directions.

These models have the parts that our GPT has with these settings, and no biases:

    norm rmsnorm    positions rotary    activation swiglu    n_kv_head, head_dim, rope_theta, tie_weights as they say

Qwen3 normalises queries and keys as well (`qk_norm`). Qwen2 adds biases to queries, keys and values only; here the
other linear maps get biases of 0. Mistral may see only the last tokens (`sliding_window`); within that many it is a
Llama, so that is its context here. Llama 3 lowers the frequencies of its rotary positions
(`rope_scaling`). The weights are ours under other names: both programs store a linear map as (out, in).

References: Touvron et al. 2023 (arXiv:2302.13971); Jiang et al. 2023 (arXiv:2310.06825); Grattafiori et al. 2024
(arXiv:2407.21783); Yang et al. 2024 and 2025 (arXiv:2407.10671, arXiv:2505.09388).
Format: the classes LlamaForCausalLM and others of https://huggingface.co/docs/transformers.
"""

import math
from collections.abc import Mapping
from reprlib import repr as short
from typing import Any, ClassVar

import numpy as np

from extra.gpt.config import GPTConfig
from extra.pretrained.layout import DECODER, OF_TEXT, USUAL, Layout, architecture_of, check_values
from extra.tokenizers.huggingface import HFTokenizer
from gpt.model import GPT
from tinygrad_lite.errors import CheckpointError
from training.model_config import read_model_config

# Settings that may be missing: as many keys as queries, and heads of hidden_size / heads.
MAY_BE_MISSING = {"llama": ("num_key_value_heads", "head_dim"), "mistral": ("head_dim",), "qwen2": ("head_dim",)}
MISTRAL_WINDOW = 4096  # where none is given
# What makes our GPT a Llama.
FIXED = {"dropout": 0.0, "positions": "rotary", "activation": "swiglu", "norm": "rmsnorm"}
LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
NO_BIAS = ("o_proj.bias", "gate_proj.bias", "up_proj.bias", "down_proj.bias")  # in Qwen2


class LlamaLayout(Layout):
    """Settings and weights of Llama, Mistral, Qwen2 and Qwen3."""

    titles: ClassVar = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    model = GPT
    read_tokenizer = HFTokenizer.from_folder
    settings: ClassVar = USUAL | OF_TEXT
    settings |= {"n_kv_head": "num_key_value_heads", "head_dim": "head_dim", "norm_eps": "rms_norm_eps"}
    required: ClassVar = DECODER | {"hidden_act": "silu", "partial_rotary_factor": 1.0}
    required |= dict.fromkeys(("attention_bias", "mlp_bias", "rope_interleaved", "use_sliding_window"), False)
    others: ClassVar = {
        *("rope_theta", "rope_scaling", "rope_parameters", "is_llama_config", "attention_dropout", "pretraining_tp"),
        *("sliding_window", "max_window_layers", "layer_types"),
    }
    blocks = "model.layers"
    parts: ClassVar = {
        "mixer_norm": "input_layernorm",
        **{f"mixer.{name}": f"self_attn.{name[0]}_proj" for name in ("query", "key", "value", "output")},
        "mixer.query_norm": "self_attn.q_norm",
        "mixer.key_norm": "self_attn.k_norm",
        "mlp_norm": "post_attention_layernorm",
        **{f"mlp.{name}": f"mlp.{name}_proj" for name in ("gate", "up", "down")},
    }
    outside: ClassVar = {"token_embedding": "model.embed_tokens", "final_norm": "model.norm", "lm_head": "lm_head"}
    tied = ("lm_head.weight", "model.embed_tokens.weight")
    buffers = r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"  # in older files
    in_weights: ClassVar = {"norm_weight": True, "attention_scale": None}

    def own_config(self, theirs: Mapping[str, Any]) -> GPTConfig:
        """Our settings; of a Mistral, the context is what it sees at once."""
        kind = theirs["model_type"]
        architecture_of(theirs, [f"{self.titles[kind]}ForCausalLM"])
        layers = theirs.get("layer_types") or []
        if not isinstance(layers, list) or any(layer != "full_attention" for layer in layers):
            raise CheckpointError("layer_types has values other than full_attention, the only one supported")
        settings = FIXED | self.own_settings(theirs, MAY_BE_MISSING.get(kind, ()))
        settings |= {"bias": kind == "qwen2", "qk_norm": kind == "qwen3", **_rope(theirs)}
        settings["tie_weights"] = theirs.get("tie_word_embeddings", False)
        contexts = [settings["block_size"]]
        if kind == "mistral" and (window := theirs.get("sliding_window", MISTRAL_WINDOW)) is not None:
            contexts.append(window)
        configs = [read_model_config(GPTConfig, settings | {"block_size": context}) for context in contexts]
        return min(configs, key=lambda config: config.block_size)  # both are checked

    def their_config(self, config: GPTConfig) -> dict[str, Any]:
        """Our settings under their names: Qwen3's with `qk_norm`, Qwen2's with biases, or Llama's."""
        kind = "qwen3" if config.qk_norm else "qwen2" if config.bias else "llama"
        resolved = {"n_kv_head": config.n_kv_head or config.n_head, "head_dim": config.head_width}
        rope = {"rope_type": "default", "rope_theta": config.rope_theta}
        if config.rope_scaling:
            rope |= {"rope_type": "llama3", **dict(zip(LLAMA3, config.rope_scaling_numbers, strict=True))}
        return {
            **self.their_settings(kind, f"{self.titles[kind]}ForCausalLM", config, **resolved),
            "hidden_act": "silu",
            "rope_parameters": rope,  # read by transformers 5, the two below by older versions
            "rope_theta": rope["rope_theta"],
            "rope_scaling": rope if config.rope_scaling else None,
            "attention_bias": False,
            "tie_word_embeddings": config.tie_weights,
        }

    def complete(self, theirs: dict[str, np.ndarray], config: GPTConfig) -> None:
        """Add biases of 0 to the linear maps that have none in Qwen2. Raises: CheckpointError if one is present."""
        added = {name: np.zeros(shape, "f4") for name, shape in self.shapes(config).items() if name.endswith(NO_BIAS)}
        if both := added.keys() & theirs.keys():
            raise CheckpointError(f"the weights hold the unknown {min(both)}: such a model has no bias there")
        theirs |= added

    def to_theirs(self, model: GPT) -> dict[str, np.ndarray]:
        """The weights under their names, with queries, or the gains of their norms, times attention's scale.

        Raises: CheckpointError if a bias that Qwen2 lacks is not 0.
        """
        found, config = super().to_theirs(model), model.config
        if config.attention_scale is not None:
            factor = config.attention_scale * math.sqrt(config.head_width)
            last = ".q_norm." if config.qk_norm else ".q_proj."
            for name in [name for name in found if last in name]:
                found[name] = found[name] * found[name].dtype.type(factor)
        for name in [name for name in found if name.endswith(NO_BIAS)]:
            if found.pop(name).any():
                raise CheckpointError(
                    f"the model has learned {name}, but in the layout of Qwen2 only queries, keys and values have "
                    "biases: train one with --bias false to export it"
                )
        return found


def _rope(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings of rotary positions: from the older `rope_scaling` and `rope_theta`, or from `rope_parameters`.

    Where both are given, `rope_scaling` replaces `rope_parameters`, as in transformers 5.
    """
    name = "rope_scaling" if theirs.get("rope_scaling") else "rope_parameters"
    rope = theirs.get(name) or {}
    if not isinstance(rope, dict):
        raise CheckpointError(f"{name} is {short(rope)}, which is not a JSON object")
    rope = {"rope_theta": theirs.get("rope_theta", 10000.0), "rope_type": rope.get("type", "default")} | rope
    kind = rope["rope_type"]
    if kind not in ("default", "llama3"):
        raise CheckpointError(f"rope_type in {name} is {short(kind)}, but this program supports only default, llama3")
    check_values(rope, {"partial_rotary_factor": 1.0})
    numbers = LLAMA3 if kind == "llama3" else ()
    if wrong := [key for key in numbers if type(rope.get(key)) not in (int, float)]:
        raise CheckpointError(f"{wrong[0]} in {name} is {short(rope.get(wrong[0]))}, but llama3 needs a number")
    known = {"rope_theta", "rope_type", "type", "partial_rotary_factor", *numbers}
    if unknown := [key for key in rope if key not in known]:
        raise CheckpointError(f"{name} has {unknown[0]}, a setting that this program does not know")
    scaling = ",".join(f"{rope[key]!r}".removesuffix(".0") for key in numbers)
    return {"rope_theta": rope["rope_theta"], "rope_scaling": scaling or None}


LAYOUT = LlamaLayout()
