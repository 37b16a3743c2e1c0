"""Give a trained GPT away: write it in the layout in which Hugging Face keeps GPT-2, which many programs read.

    python -m gpt.export out/goethe-char/best.safetensors goethe-gpt2

The folder then holds

    config.json                       the settings, by GPT-2's names
    model.safetensors                 the weights, by GPT-2's names and in its orientation (`gpt/pretrained.py`)
    tinygrad_lite_tokenizer.json      our tokenizer
    tokenizer.json                    only if the model began as a GPT-2 that came with one

transformers' `GPT2LMHeadModel.from_pretrained("goethe-gpt2")` computes the same logits from it. GPT-2 has a bias in
every linear map and norm; a model without them gets zeros there. It has learned positions only, so a model with
sinusoidal ones cannot be exported, nor one with another setting that GPT-2 has no name for.

Our own byte-level BPE is not written as a `tokenizer.json`: the two programs would cut text into words by regular
expressions whose classes of Unicode characters are not exactly the same, so some text would get other tokens.
Encode with our tokenizer and hand over ids, as with the other kinds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as to_bytes

from gpt.config import GPTConfig
from gpt.model import GPT
from gpt.pretrained import OUR_ACTIVATION, OWN_TOKENIZER, WEIGHTS, gpt2_shapes, layer_names, own_config
from gpt.trained import load_trained
from tinygrad_lite.cli.console import run_command, say
from tinygrad_lite.cli.errors import CheckpointError, OptionError
from tinygrad_lite.tokenizers.huggingface import GPT2_SPECIAL, HFTokenizer
from tinygrad_lite.training.model_spec import Trained

USAGE = "usage: python -m gpt.export CHECKPOINT DIR    (a .safetensors file or a run's folder; a new folder)"


def main(argv: list[str]) -> int:
    if argv in (["--help"], ["-h"]):
        print(__doc__)
        return 0
    if len(argv) != 2 or any(word.startswith("-") for word in argv):
        raise OptionError(f"two arguments are needed, a checkpoint and a folder; {USAGE}")
    source, folder = map(Path, argv)
    trained = load_trained(source)
    export(trained, folder)
    say(f"{trained.about}; now in the layout of GPT-2 in {folder}/")
    return 0


def export(trained: Trained, folder: Path) -> None:
    """Write a trained GPT into a new or empty folder.

    Raises: CheckpointError if it has positions that GPT-2 has not, or if the folder cannot be written.
    """
    model, tokenizer = trained.make_model(), trained.tokenizer  # which checks that settings and weights fit together
    dtype = model.token_embedding.weight.dtype.name
    end = tokenizer.specials.get("<eos>", tokenizer.specials.get(GPT2_SPECIAL))
    settings = gpt2_config(trained.config, dtype, end)
    weights = to_gpt2_weights(model)
    files = {
        "config.json": _as_json(settings),
        OWN_TOKENIZER: _as_json(tokenizer.to_json()),
        WEIGHTS: to_bytes(weights, {"format": "pt"}),  # transformers refuses a file that does not say which program's
    }
    if isinstance(tokenizer, HFTokenizer):
        files["tokenizer.json"] = tokenizer.definition.encode("utf-8")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CheckpointError(f"{folder} is not empty: name a new folder, so that nothing in it is overwritten")
        for name, data in files.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        raise CheckpointError(f"cannot write into {folder} ({error.strerror}): name another folder") from None


def gpt2_config(config: GPTConfig, dtype: str, end: int | None) -> dict[str, Any]:
    """Our settings by GPT-2's names.

    Args:
        dtype: of the weights.
        end: the id of the token that ends a text, None if there is none.
    Raises: CheckpointError if GPT-2 has no name for one of them, which is found out by reading them back.
    """
    names = (name for name, ours in OUR_ACTIVATION.items() if ours == config.activation)
    theirs = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.block_size,
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_inner": config.n_inner or None,
        "activation_function": next(names, "gelu"),  # of one without a name, this refuses it below
        "layer_norm_epsilon": config.norm_eps,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
        "tie_word_embeddings": True,
        "bos_token_id": end,  # left out, it would be GPT-2's 50256
        "eos_token_id": end,
        "dtype": dtype,
    }
    read = own_config(theirs)
    for name in config.shape() - {"bias"}:  # a bias of zeros is none
        if getattr(read, name) != getattr(config, name):
            raise CheckpointError(
                f"the model has {name} {getattr(config, name)}, but the layout of GPT-2 has room for "
                f"{getattr(read, name)} only: train one with --{name} {getattr(read, name)} to export it"
            )
    return theirs


def to_gpt2_weights(model: GPT) -> dict[str, np.ndarray]:
    """The weights by GPT-2's names, in its orientation, with zeros for the biases that a model without has not."""
    ours = model.state_dict()
    dtype = ours["token_embedding.weight"].dtype
    parts = layer_names(model.config.n_layer)
    theirs = {}
    for name, shape in gpt2_shapes(model.config).items():
        their_part, _, kind = name.rpartition(".")
        our_part = parts[their_part]
        sources = [our_part]
        if their_part.endswith("c_attn"):
            sources = [f"{our_part}.query", f"{our_part}.key", f"{our_part}.value"]
        if kind == "bias" and f"{sources[0]}.bias" not in ours:
            array = np.zeros(shape, dtype)
        else:
            array = np.concatenate([ours[f"{source}.{kind}"] for source in sources])
        if "c_" in their_part:  # a linear map
            array = array.T  # (out, in) -> (in, out)
        theirs[f"transformer.{name}"] = np.ascontiguousarray(array)
    return theirs


def _as_json(data: dict[str, Any]) -> bytes:
    return (json.dumps(data, indent=2, sort_keys=True) + "\n").encode("utf-8")


if __name__ == "__main__":
    run_command("gpt.export", main)
