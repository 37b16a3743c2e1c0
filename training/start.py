"""The origin and the settings of a run: everything before the training loop in train.py.

    --init_from scratch       settings: defaults < preset < command line;                   weights: random
    --init_from resume        settings: those of the run in out_dir < command line;         weights: its last ones
    --init_from PATH          settings: defaults < preset < PATH's shape < command line;    weights: PATH's

The last is called fine-tuning: training continues from trained weights, usually on another text and with a smaller
learning rate. The optimizer and the step count start from zero; the tokenizer is PATH's, because the embedding has a
row for each of its tokens.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tinygrad_lite.errors import CorpusError, OptionError
from training.checkpoint import load_checkpoint
from training.cli.command_line import parse_command_line, split_command_line
from training.cli.console import quoted, say
from training.cli.options import all_presets, brief, build, fields_of, is_preset, settings_of, values_of
from training.family import Family, family_of_weights
from training.folder import RunFolder
from training.options import TrainOptions
from training.origin import adapted_options, load_origin, name_of, names_text, resumed_options
from training.setup import RunSetup

# What --help shows first.
COMMON = "text pairs resume out_dir max_iters batch_size learning_rate n_layer n_embd block_size device".split()
IGNORED = ("compile", "wandb_log", "wandb_project", "wandb_run_name", "backend")


def read_setup(argv: list[str], families: Mapping[str, Family]) -> RunSetup:
    """Read the command line. The available options depend on the preset or weights that it names.

    Args:
        families: by name; the first is that of a command that names none.
    Raises: UserError with one sentence if something is wrong, before any text is fetched.
    """
    described = all_presets()
    lists = [line for title, presets in described.items() for line in listed(title, presets)]
    family, named = choose_family(argv, families)
    hints, explained = options_elsewhere(family, families)
    preset = named if is_preset(named) else family.preset
    base = {key: value for key, value in settings_of(preset).items() if key != "family"}
    given, _ = parse_command_line(
        family.options,
        argv,
        prog="train.py",
        description=f"{family.about} The defaults shown are those of {preset}.",
        examples=family.examples,
        positional="preset",
        about_positional=f"settings by name (default {family.preset}), or a file of your own, such as mine.toml: "
        f"{', '.join(next(iter(described.values())))}",
        common=COMMON,
        epilog="\n".join([*lists, *explained]),
        ignored=dict.fromkeys(IGNORED, "this project has no such feature"),
        hints=hints | {"model": "is not needed: a preset is named alone, as in python train.py baby-gpt"},
        defaults=values_of(build(family.options, (f"preset {preset}", base))),
    )
    if named not in (None, preset):
        refuse_name(named)
    if "dataset" in given and given["dataset"] not in {*datasets_of(family), *family.options.DATASETS}:
        for other in families.values():
            if given["dataset"] in datasets_of(other):
                command = f"python train.py {other.preset} --dataset {given['dataset']}"
                raise OptionError(f"--dataset {given['dataset']} belongs to {other.title}: use {command}")
    options = build(family.options, (f"preset {preset}", base), ("command line", given))
    origin = "resume" if options.resume else options.init_from
    # The default preset does not count as a request, nor does one that is named where a run is resumed.
    asked = base | given if named and origin != "resume" else given
    if origin == "resume" and options.overwrite:
        raise OptionError("--resume continues a run and --overwrite starts it again: omit one of them")
    if options.resume and given.get("init_from", "resume") not in ("scratch", "resume"):
        start = f"--init_from {options.init_from} starts a new one"
        raise OptionError(f"--resume continues a run and {start}: omit one of them")
    name = default_name(family, named, origin, given).lstrip(".") or "text"  # of ...txt the stem is ..
    folder, checkpoint, trained = RunFolder(options.out_dir or Path("out") / name), None, None
    if origin == "resume":
        checkpoint = load_checkpoint(folder.last, optimizer=True)
        family.check_family(folder.last, checkpoint)
        trained = family.read_base(folder.last, checkpoint)
        options = resumed_options(family, checkpoint, given, folder, trained)
    elif origin != "scratch":
        trained = load_origin(family, origin)
        options = adapted_options(family, trained, base, given, asked)
    setup = family.setup(family, options, folder, checkpoint, trained, named, names_text(family, given))
    setup.check(given, asked)
    setup.refuse_if_used()
    if texts := setup.unnamed_texts():
        options.dataset, stand_in = first_available(options, texts)
        if stand_in and is_preset(options.dataset):  # which has its own settings and folder
            setup = read_setup([options.dataset, *argv], families)
        setup.stand_in = stand_in
    return setup


def refuse_name(word: str) -> None:
    """Raise OptionError for a word that names no preset: say what it may mean, or which presets there are."""
    if os.path.exists(word) or Path(word).suffix:
        option = "init_from" if os.path.isdir(word) or Path(word).suffix == ".safetensors" else "text"
        raise OptionError(f"{word} is not a preset; did you mean: python train.py --{option} {quoted(Path(word))}")
    settings_of(word)


def first_available(options: TrainOptions, texts: Sequence[str]) -> tuple[str, str]:
    """For a command that names no text: the first of these that is available, and why it is not the first of all.

    If none is available, it is the first, and preparing it says what can be done.
    """
    reason = ""
    for text in texts:
        try:
            options.find_text(text)
        except CorpusError as error:
            if not reason:
                say(f"no text is named, and {text} is unavailable here ({error}): trying {', '.join(texts[1:])}")
            reason = reason or str(error)
        else:
            if reason:
                say(f"this run learns from {text} instead")
            return text, reason and f"{text} instead of {texts[0]}, which is unavailable here ({reason})"
    return texts[0], ""


def choose_family(argv: Sequence[str], families: Mapping[str, Family]) -> tuple[Family, str | None]:
    """The family of the named preset, else that of the weights to start from or to resume, else the first.

    Returns: it, and the first word that is neither an option nor the value of one, which may name a preset.
    """
    # Whether a word is the preset, or the value of an option before it, depends on the options of all families.
    values, rest = split_command_line(argv, *(one.options for one in families.values()))
    named = next(iter(rest), None)
    if is_preset(named):
        return family_of(settings_of(named), families), named
    places = values.get("init_from", [])
    if "resume" in values or places == ["resume"]:
        places = values.get("out_dir", [])
    for place in places:
        for path in (Path(place), RunFolder(place).last):
            if found := family_of_weights(path, [*families.values()]):
                return found, named
    return next(iter(families.values())), named


def datasets_of(family: Family) -> set[str]:
    """The only names that --dataset of a family accepts; empty if it accepts others too."""
    return {*(fields_of(family.options)[0]["dataset"].metadata["choices"] or ())}


def listed(title: str, described: Mapping[str, str]) -> list[str]:
    """Lines of --help: a title, and each name with its description."""
    return [f"{title}:", *(f"  {name:<16} {about}" for name, about in described.items()), ""]


def options_elsewhere(family: Family, families: Mapping[str, Family]) -> tuple[dict[str, str], list[str]]:
    """For options that only other families have: where each belongs, and a line of --help for each such family."""
    own, hints, lines = fields_of(family.options)[0], {}, []
    for number, other in enumerate(families.values()):
        names = [name for name in fields_of(other.options)[0] if name not in own]
        # The preset of the first family need not be named.
        command = "python train.py" if not number else f"python train.py {other.preset}"
        hints = {name: f"belongs to {other.title}: {command} --{name} ..." for name in names} | hints
        if names:
            listed = ", ".join(f"--{name}" for name in names)
            lines.append(f"Options of {other.title} only, explained by {command} --help all: {listed}")
    return hints, lines


def default_name(family: Family, named: str | None, origin: str, given: Mapping[str, Any]) -> str:
    """The name of a run without --out_dir: that of the named preset, of the weights to start from, or of the text."""
    files = given.get("text")
    if not named and origin not in ("scratch", "resume"):
        return f"{name_of(Path(origin))}-finetuned"
    if named or files:
        return Path(named or files[0]).stem
    # A command that names no text resumes the run of the first text that could stand in for the preset's.
    unnamed = family.options.UNNAMED.get(None, ()) if origin == "resume" else ()
    return next((text for text in unnamed if RunFolder(Path("out") / text).last.exists()), family.preset)


def family_of(preset: Mapping[str, Any], families: Mapping[str, Family]) -> Family:
    """The family that a preset names, or the first.

    Raises: OptionError if it names an unknown family.
    """
    name = preset.get("family", next(iter(families)))
    if name not in [*families]:
        raise OptionError(f"the preset names the family {brief(name)}, but the families are {', '.join(families)}")
    return families[name]
