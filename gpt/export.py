"""Export a trained GPT in Hugging Face's layout of GPT-2, Llama or Qwen3, which many programs read.

    python -m gpt.export out/goethe-char/best.safetensors goethe-gpt2

The folder then holds

    config.json                       the settings, under that model's names
    model.safetensors                 the weights, under its names (`gpt/gpt2_layout.py`, `gpt/llama_layout.py`)
    tinygrad_lite_tokenizer.json      our tokenizer
    tokenizer.json                    only if the model was fine-tuned from one that has it

transformers' `AutoModelForCausalLM.from_pretrained("goethe-gpt2")` computes the same logits from it. A model with RMS
norms is written as a Llama, or as a Qwen3 if it normalises queries and keys, any other as a GPT-2. GPT-2 has a bias in
every linear map and norm; a model without them gets zeros there. A model with a setting that the layout lacks, such as
sinusoidal positions, cannot be exported.

Our own byte-level BPE is not written as a `tokenizer.json`: the two programs would cut text into words by regular
expressions whose classes of Unicode characters differ slightly, so some text would get different tokens. Encode with
our tokenizer and pass ids, as with the other kinds.

An adapter, the checkpoint of a run with `--lora_rank`, is written in the layout of peft instead (`gpt/peft_layout.py`):

    python -m gpt.export out/goethe-char-finetuned goethe-adapter

`PeftModel.from_pretrained(base, "goethe-adapter")` of peft then reads it, where `base` is the exported base.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from safetensors.numpy import save as to_bytes

from gpt.config import GPTConfig
from gpt.peft_layout import peft_files
from gpt.trained import layout_of, load_trained
from tinygrad_lite.cli.console import run_command, say
from tinygrad_lite.cli.errors import CheckpointError, OptionError
from tinygrad_lite.tokenizers.huggingface import GPT2_SPECIAL, HFTokenizer
from tinygrad_lite.training.checkpoint import describe, fact_in, load_checkpoint
from tinygrad_lite.training.model_spec import Trained, check_family
from tinygrad_lite.training.pretrained import OWN_TOKENIZER, WEIGHTS, is_pretrained_folder
from tinygrad_lite.training.run_folder import newest_checkpoint

USAGE = "usage: python -m gpt.export CHECKPOINT DIR    (a .safetensors file or a run's folder; a new folder)"


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    if argv in (["--help"], ["-h"]):
        print(__doc__)
        return 0
    if len(argv) != 2 or any(word.startswith("-") for word in argv):
        raise OptionError(f"two arguments are needed, a checkpoint and a folder; {USAGE}")
    source, folder = map(Path, argv)
    file = newest_checkpoint(source) if source.is_dir() and not is_pretrained_folder(source) else source
    if file.is_file() and fact_in(file, "base"):
        checkpoint = load_checkpoint(file)
        check_family(file, checkpoint, "gpt")
        config = GPTConfig.from_json(checkpoint.model)
        checked_settings(layout_of(config), config)  # an adapter of a base that peft cannot have is of no use
        write_files(folder, peft_files(file, checkpoint))
        say(f"{file}: {describe(checkpoint)}; exported in the layout of peft to {folder}/")
        return 0
    trained = load_trained(source)
    architecture = export(trained, folder)
    say(f"{trained.about}; exported in the layout of {architecture} to {folder}/")
    return 0


def export(trained: Trained, folder: Path) -> str:
    """Write a trained GPT into a new or empty folder.

    Returns: the name of the architecture, such as GPT2LMHeadModel.
    Raises: CheckpointError if the layout lacks one of its settings, or if the folder cannot be written.
    """
    model, tokenizer = trained.make_model(), trained.tokenizer  # this checks that weights and settings agree
    dtype = model.token_embedding.weight.dtype.name
    end = tokenizer.specials.get("<eos>", tokenizer.specials.get(GPT2_SPECIAL))
    layout = layout_of(trained.config)
    settings = checked_settings(layout, trained.config)
    # Without the ids of bos and eos, they would be those of the original model.
    settings |= {"bos_token_id": end, "eos_token_id": end, "dtype": dtype}
    weights = layout.to_theirs(model)
    files = {
        "config.json": _as_json(settings),
        OWN_TOKENIZER: _as_json(tokenizer.to_json()),
        WEIGHTS: to_bytes(weights, {"format": "pt"}),  # transformers requires this entry
    }
    if isinstance(tokenizer, HFTokenizer):
        files["tokenizer.json"] = tokenizer.definition.encode("utf-8")
    write_files(folder, files)
    return settings["architectures"][0]


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a new or empty folder. Raises: CheckpointError if that is impossible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CheckpointError(f"{folder} is not empty: name a new folder, so that nothing is overwritten")
        for name, data in files.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        raise CheckpointError(f"cannot write into {folder} ({error.strerror}): name another folder") from None


def checked_settings(layout: ModuleType, config: GPTConfig) -> dict[str, Any]:
    """Our settings under the names of a layout.

    Raises: CheckpointError if it lacks one of them, that is, if reading them back gives other settings.
    """
    theirs = layout.their_config(config)
    read = resolved(layout.own_config(theirs))
    for name, ours in resolved(config).items():
        if name == "bias" and read[name]:  # a bias of zeros is equivalent to no bias
            continue
        if read[name] != ours:
            allowed = "none" if read[name] is None else read[name]
            raise CheckpointError(
                f"the model has {name} {ours}, but the layout of {theirs['architectures'][0]} allows only {allowed}: "
                f"train one with --{name} {str(allowed).lower()} to export it"
            )
    return theirs


def resolved(config: GPTConfig) -> dict[str, Any]:
    """The settings that weights depend on; what a value of 0 or None stands for in its place."""
    settings = {name: getattr(config, name) for name in sorted(config.shape())}
    widths = {"n_inner": config.n_hidden, "n_kv_head": config.n_kv_head or config.n_head, "head_dim": config.head_width}
    return settings | widths


def _as_json(data: dict[str, Any]) -> bytes:
    return (json.dumps(data, indent=2, sort_keys=True) + "\n").encode("utf-8")


if __name__ == "__main__":
    run_command("gpt.export", main)
