"""Settings of a GPT that change several parts at once, as in current models.

A new part belongs in one of them: then it is tested with and without a cache, in one step and in several, fused and
composed.
"""

from typing import Any

from tests.gpt.configs import has

Settings = dict[str, Any]

# After modded-nanogpt's records, Llama 3, Qwen 3 with one head of keys, and GPT-2 with parts of others.
SPEED_RUN: Settings = {"norm": "rmsnorm", "norm_weight": False, "positions": "rotary", "qk_norm": True}
SPEED_RUN |= {"attention_scale": 1.5, "activation": "relu2", "tie_weights": False}
LLAMA: Settings = {"norm": "rmsnorm", "norm_eps": 1e-3, "positions": "rotary", "rope_theta": 500.0}
LLAMA |= {"activation": "swiglu", "n_inner": 20, "n_head": 4, "n_kv_head": 2, "head_dim": 4}
QWEN: Settings = LLAMA | {"qk_norm": True, "n_head": 3, "n_kv_head": 1, "head_dim": 6, "bias": True}
MIXED: Settings = {"positions": "rotary", "head_dim": 2, "bias": True, "attention_scale": 0.2}
SINUSOIDAL: Settings = {"positions": "sinusoidal", "qk_norm": True, "head_dim": 5, "n_kv_head": 1}
BARE: Settings = {"positions": "none", "activation": "linear"}
POST_NORM: Settings = {"norm_first": False, "residual": False}
RNN: Settings = {"mixer": "rnn", "n_state": 7, "bias": True}
LSTM: Settings = {"mixer": "lstm", "n_state": 3, "positions": "none", "norm": "rmsnorm", "recompute": True}
WINDOW: Settings = {"window": 3, "positions": "alibi", "n_kv_head": 1}
EXCLUSIVE: Settings = {"mixer": "exclusive", "positions": "rotary", "n_kv_head": 1, "bias": True}
HYENA: Settings = {"mixer": "hyena", "positions": "none", "bias": True}
MAMBA2: Settings = {"mixer": "mamba2", "positions": "none"}
COMBINED = {"speed run": SPEED_RUN, "llama": LLAMA, "qwen": QWEN, "mixed": MIXED, "sinusoidal": SINUSOIDAL}
COMBINED |= {"bare": BARE, "post-norm": POST_NORM, "window": WINDOW}
COMBINED |= {"rnn": RNN, "lstm": LSTM, "exclusive": EXCLUSIVE, "hyena": HYENA, "mamba2": MAMBA2}
COMBINED = dict(kind for kind in COMBINED.items() if has(kind[1]))
