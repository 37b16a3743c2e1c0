"""The settings of a run that starts from trained weights: its own if it is resumed, new ones if it is fine-tuned.

The weights determine the shape of the model and its tokenizer, so a run that starts from weights takes both from them,
and an option that contradicts them is an error.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from text.tokenizers import tokenizer_from_json
from tinygrad_lite.errors import CheckpointError, OptionError, counted
from training.checkpoint import Checkpoint
from training.cli.console import say
from training.cli.options import build, difference, is_preset, values_of
from training.family import Family, Trained, check_specials
from training.folder import RunFolder
from training.model_config import read_model_config
from training.options import TrainOptions


def fixed(family: Family) -> frozenset[str]:
    """The options that determine the weights; a run that starts from weights cannot change them."""
    return family.config.shape() | {"tokenizer", "vocab_size"}


# --- resuming -------------------------------------------------------------------------------------------------


def resumed_options(
    family: Family, checkpoint: Checkpoint, given: Mapping[str, Any], folder: RunFolder, base: Trained | None = None
) -> TrainOptions:
    """The settings of the run that is resumed, with what the command line changes; prints the changes.

    Args:
        base: the model to which what the run learns belongs; None if it learns all weights.
    """
    saved = (f"checkpoint {folder.last}", checkpoint.training)
    check_saved(folder.last, family, checkpoint.training)
    before = build(family.options, saved)
    # The checkpoint holds no paths; those of the text are in options.json.
    files, is_named, noted = family.options.FILES, names_text(family, given), folder.noted_options()
    wanted = {*family.options.paths()} - {*files} if is_named else family.options.paths()
    paths = {name: noted[name] for name in wanted if name in noted}
    if files and not is_named and paths.keys().isdisjoint(files):
        problem = f"{folder.options} is missing or damaged, so the text of the run is unknown"
        raise OptionError(f"{problem}: name it with --dataset or --{files[0]}")
    options = build(family.options, saved, (str(folder.options), paths), ("command line", given))
    if not is_named and not any(getattr(options, name) for name in files):
        # In version 0.3.0 a text that could not be fetched was replaced by another one under its name: the hash tells.
        from training.corpora.texts import RECIPES

        named = {recipe.expected: name for name, recipe in RECIPES.items()}
        options.dataset = named.get(checkpoint.corpus_sha256, options.dataset)
    earlier, now = values_of(before), values_of(options)
    for name in sorted((fixed(family) | family.options.FIXED) & given.keys()):
        old, new = earlier[name], now[name]
        # Another dtype may change only the precision of a GPU's products.
        if old != new and (name != "dtype" or options.weight_dtype != before.weight_dtype):
            reason = f"the run in {folder.path} has {old}, which its weights require"
            raise OptionError(f"cannot resume with --{name} {new}: {reason}; start a new run with another --out_dir")
    for line in difference(checkpoint.training, options.saved()):
        say(f"changed: {line}")
    tell_new_rate(before, options, checkpoint.step)
    if options.max_iters < checkpoint.step:
        made = counted(checkpoint.step, "step")
        raise OptionError(f"--max_iters {options.max_iters}: the run in {folder.path} has already made {made}")
    tokenizer = base.tokenizer if base else tokenizer_from_json(checkpoint.tokenizer)
    held = read_model_config(family.config, checkpoint.model)
    check_specials(folder.last, held, tokenizer)
    described = options.model_config(tokenizer.vocab_size, tokenizer.specials)
    if any(getattr(held, name) != getattr(described, name) for name in {*held.shape(), "vocab_size"}):
        raise CheckpointError(f"{folder.last}: its model is not the one that its tokenizer and settings describe")
    return options


def tell_new_rate(before: TrainOptions, now: TrainOptions, step: int) -> None:
    """Say it if changed settings make the learning rate jump at this step, and which ones it would take not to."""
    if not step or math.isclose(before.learning_rate_at(step), rate := now.learning_rate_at(step), rel_tol=0.01):
        return
    old, new = ({"schedule": it.schedule, "decay_lr": it.decay_lr} | it.rate_settings() for it in (before, now))
    own, last = values_of(now), before.learning_rate_at(step - 1)
    changed = [name for name, value in old.items() if new.get(name, value) != value]
    earlier = " ".join(f"--{name if name in own else 'max_iters'} {old[name]}" for name in changed)
    say(f"note: the learning rate jumps from {last:.3g} to {rate:.3g}; it would not with {earlier}")


def names_text(family: Family, given: Mapping[str, Any]) -> bool:
    """Whether a command line names what to learn from."""
    return not given.keys().isdisjoint({*family.options.FILES, "dataset"})


def check_saved(path: Path, family: Family, training: Mapping[str, Any]) -> None:
    """Raise CheckpointError if settings name files to read or write, which an untrusted checkpoint must not do."""
    dataset = training.get("dataset")
    outside = sorted((family.options.NOT_SAVED | {*family.options.paths()}) & training.keys())
    if isinstance(dataset, str) and Path(dataset).name != dataset:
        outside.append("dataset")
    if outside:
        raise CheckpointError(f"{path}: its settings contain {outside[0]}, which only the command line may set")


# --- fine-tuning ----------------------------------------------------------------------------------------------


def name_of(origin: Path) -> str:
    """The name of a run that starts from this file or folder: the folder's."""
    return (origin.parent if origin.suffix == ".safetensors" else origin).resolve().name or "gpt"


def load_origin(family: Family, origin: str) -> Trained:
    """The weights that --init_from names.

    Raises: OptionError if it names nothing; CheckpointError or TokenizerError if that cannot be used.
    """
    path = Path(origin)
    if not path.exists() and not family.has(path):
        if path.parent == Path("out") and is_preset(path.name):
            raise OptionError(f"--init_from {origin}: there is no such run yet: python train.py {path.name} makes it")
        accepted = "'scratch', 'resume', a checkpoint or the folder of a run, or a folder in Hugging Face's layout"
        raise OptionError(f"--init_from {origin}: there is no such file or folder; it takes {accepted}")
    trained = family.read_start(path)
    say(trained.about)
    return trained


def adapted_options(
    family: Family, trained: Trained, base: Mapping[str, Any], given: Mapping[str, Any], asked: Mapping[str, Any]
) -> TrainOptions:
    """The settings of a new run that starts from weights: their shape and tokenizer, else preset and command line.

    Args:
        base, given: the values of the preset, and of the command line.
        asked: the values that the user requested, by a preset or on the command line, which must not be ignored
            silently. A preset's shape yields to that of the weights, with a note.
    Raises: OptionError that names an option on the command line that contradicts the weights.
    """
    own = {name: getattr(trained.config, name) for name in trained.config.shape()}
    own |= {"tokenizer": trained.tokenizer.kind, "vocab_size": trained.config.vocab_size}
    for name in sorted(fixed(family) & asked.keys()):
        if name == "block_size" and asked[name] < own[name]:
            own[name] = asked[name]  # a shorter context than the weights' is possible, and faster
        elif name in given and asked[name] != own[name]:
            problem = f"does not fit the weights of {trained.path}, which have {own[name]}"
            raise OptionError(f"--{name} {asked[name]} {problem}: omit it, or train from scratch")
    if yielding := [f"{name} {asked[name]}" for name in sorted(own.keys() & asked.keys()) if asked[name] != own[name]]:
        say(f"note: of the preset, {', '.join(yielding)} does not apply: the weights of {trained.path} have their own")
    return build(family.options, ("preset", base), (str(trained.path), own), ("command line", {**given, **own}))
