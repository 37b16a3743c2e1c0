"""Export a trained model as a folder in Hugging Face's layout: what the commands of all families share.

`extra/pretrained/export.py` and `extra/encoders/export.py` choose the layout; `pretrained.py` reads such folders.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors.numpy import save as to_bytes

from extra.encoders.config import BertConfig
from extra.pretrained.layout import Layout
from extra.pretrained.read import OWN_TOKENIZER, WEIGHTS
from tinygrad_lite.config import ModelConfig
from tinygrad_lite.errors import CheckpointError, OptionError
from training.cli.console import say
from training.family import Trained


def export_command(argv: list[str], module: str, export: Callable[[Path, Path], str]) -> int:
    """Run the command line of `python -m module CHECKPOINT DIR` and return the exit status.

    Args:
        export: reads a checkpoint, writes it into a folder, and returns what it was and its layout, in words.
    """
    if len(argv) != 2 or any(word.startswith("-") for word in argv):
        raise OptionError(
            f"two arguments are needed, a checkpoint and a folder; usage: python -m {module} CHECKPOINT DIR    "
            "(a .safetensors file or a run's folder; a new folder)"
        )
    source, folder = map(Path, argv)
    say(f"{export(source, folder)} to {folder}/")
    return 0


def write_pretrained(trained: Trained, layout: Layout, folder: Path, **more: Any) -> str:
    """Write a trained model into a new or empty folder: settings, weights and tokenizer.

    Args:
        more: settings besides those of the layout, under their names.
    Returns: the name of the architecture, such as GPT2LMHeadModel.
    Raises: CheckpointError if the layout lacks one of its settings, or if the folder cannot be written.
    """
    model = trained.make_model()  # this checks that weights and settings agree
    settings, weights = checked_settings(layout, trained.config), layout.to_theirs(model)
    settings |= more | {"dtype": next(iter(weights.values())).dtype.name}
    files = {
        "config.json": as_json(settings),
        OWN_TOKENIZER: as_json(trained.tokenizer.to_json()),
        WEIGHTS: to_bytes(weights, {"format": "pt"}),  # transformers requires this entry
        **{name: text.encode("utf-8") for name, text in trained.tokenizer.folder_files().items()},
    }
    write_files(folder, files)
    return settings["architectures"][0]


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a new or empty folder.

    Raises: CheckpointError if that is impossible.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CheckpointError(f"{folder} is not empty: name a new folder, so that nothing is overwritten")
        for name, data in files.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        raise CheckpointError(f"cannot write into {folder} ({error.strerror}): name another folder") from None


def checked_settings(layout: Layout, config: ModelConfig) -> dict[str, Any]:
    """Our settings under the names of a layout.

    Raises: CheckpointError if it lacks one of them, that is, if reading them back results in different settings.
    """
    theirs = layout.their_config(config)
    read = effective(layout.own_config(theirs))
    for name, ours in effective(config).items():
        if read[name] != ours and name not in layout.in_weights:
            allowed = "none" if read[name] is None else read[name]
            raise CheckpointError(
                f"the model has {name} {ours}, but the layout of {theirs['architectures'][0]} allows only {allowed}: "
                f"train one with --{name} {str(allowed).lower()} to export it"
            )
    return theirs


def effective(config: ModelConfig) -> dict[str, Any]:
    """The settings that results depend on, with 0 and None replaced by what they stand for."""
    widths = {"n_inner": config.n_hidden, "n_kv_head": config.n_kv_head or config.n_head, "head_dim": config.head_width}
    widths |= {"n_state": config.state_width} if config.is_recurrent else {}
    settings = {name: widths.get(name, getattr(config, name)) for name in sorted(config.shape())}
    if isinstance(config, BertConfig):  # settings of heads count only if there is one
        settings["next_sentence"] &= config.objective == "words"
        settings |= {"pooling": config.pooling} if config.has_pooler else {}
    return settings


def as_json(data: Mapping[str, Any]) -> bytes:
    """A JSON object as the contents of a file."""
    return (json.dumps(data, indent=2, sort_keys=True) + "\n").encode("utf-8")
