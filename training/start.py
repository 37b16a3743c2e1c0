"""The origin and the settings of a run: everything before the training loop in train.py.

    --init_from scratch       settings: defaults < preset < command line;                   weights: random
    --init_from resume        settings: those of the run in out_dir < command line;         weights: its last ones
    --init_from PATH          settings: defaults < preset < PATH's shape < command line;    weights: PATH's

The last is called fine-tuning: training continues from trained weights, usually on another text and with a smaller
learning rate. The optimizer and the step count start from zero; the tokenizer is PATH's, because the embedding has a
row for each of its tokens. With --freeze or --lora_rank only part of the model learns, and PATH is its base, which a
resumed run needs too (adapters.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from extra.adapters.adapter import fingerprint
from extra.mpi.mpirun import launched
from extra.pretrained.read import is_pretrained_folder
from extra.studies.sizes import SIZES, read_size
from text.tokenizers import tokenizer_from_json
from text.tokenizers.base import Tokenizer
from tinygrad_lite.adapt import load_learned
from tinygrad_lite.errors import CheckpointError, CorpusError, OptionError, counted
from tinygrad_lite.nn import Module
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.random import random_key
from training.checkpoint import Checkpoint, load_checkpoint
from training.cli.command_line import parse_command_line, split_command_line
from training.cli.console import quoted, say
from training.cli.options import PRESETS, brief, build, fields_of, find_preset, list_presets, read_preset, values_of
from training.family import Family, Task, Trained, check_family, family_of_weights
from training.folder import MAX_DEFAULT_WORKERS, RunFolder, available_cores, choose_device
from training.options import TrainOptions
from training.origin import adapted_options, load_origin, name_of, names_text, resumed_options

# What --help shows first.
COMMON = "text pairs resume out_dir max_iters batch_size learning_rate n_layer n_embd block_size device".split()
IGNORED = ("compile", "wandb_log", "wandb_project", "wandb_run_name", "backend")


@dataclass
class RunSetup:
    """The options, folder and weights with which a run starts.

    Attributes:
        checkpoint: the last state of the run that is resumed; None for a new run.
        trained: the weights with which a new run starts, or the base of an adapter; None for random weights.
        named: the name in `sizes.py` of the model whose cost is requested; None for a preset.
        names_text: whether the command line names the text of a run that is resumed, which may then be a different one.
        vocab_size: size of the vocabulary, once the text has been read.
        base: what a checkpoint says about `trained`, if only part of the model learns; else empty.
        stand_in: the text of a command that names none, and why it is not the usual one; empty if it is.
        freezable: the names of the weights that may be frozen, those of `trained`; None: any.
    """

    family: Family
    options: TrainOptions
    folder: RunFolder
    checkpoint: Checkpoint | None = None
    trained: Trained | None = None
    named: str | None = None
    names_text: bool = False
    vocab_size: int | None = field(init=False, default=None)
    stand_in: str = field(init=False, default="")
    base: dict[str, Any] = field(init=False, default_factory=dict)
    freezable: frozenset[str] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.trained is None:
            return
        self.freezable = frozenset(self.trained.weights)
        if self.checkpoint:
            self.base = self.checkpoint.base
        elif self.options.adapts:
            place, sha256 = self.trained.path.as_posix(), fingerprint(self.trained.weights)
            self.base = {"path": place, "sha256": sha256, "alpha": self.options.lora_alpha}
            if self.options.quantize:
                self.base["quantize"] = self.options.quantize

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the weights; None for random weights, which fit any."""
        if self.trained:
            return self.trained.tokenizer
        return tokenizer_from_json(self.checkpoint.tokenizer) if self.checkpoint else None

    def make_task(self) -> Task:
        """Prepare the data, and print a description."""
        task = self.family.task(self.options, self.tokenizer)
        self.vocab_size = task.tokenizer.vocab_size
        say(task.describe())
        if self.tokenizer:
            warn_of_unknown(task)
        return task

    def make_model(self, tokenizer: Tokenizer) -> Module:
        """The model to train. Random weights depend only on the seed, not on the device.

        Trained weights are moved into it, so it can be made only once.
        """
        options = self.options
        config = options.model_config(tokenizer.vocab_size, tokenizer.specials)
        make = self.family.model_of(config)
        with random_key(options.seed):
            if self.trained:
                weights = self.family.fit(self.trained.weights, config)
                self.trained.weights.clear()  # so that only the model holds the arrays
                model = make.from_weights(config, weights, options.device, take=True)
            elif self.checkpoint:
                model = make.from_weights(config, self.checkpoint.weights, options.device)
            else:
                model = make(config)
            model.to(options.device, options.weight_dtype)
            options.adapt(model, self.freezable)
        if self.trained and self.checkpoint:
            try:
                load_learned(model, self.checkpoint.weights)
            except ValueError as error:
                raise CheckpointError(f"{self.folder.last}: {error}") from None
        return model

    def begin(self, optimizer: Optimizer, task: Task) -> None:
        """Prepare the folder, and restore the optimizer if the run is resumed."""
        noted = {**self.options.noted(), "loss_per": task.predicted, "bits_per": task.unit}
        if self.checkpoint is None:
            if not self.options.overwrite:
                self.folder.refuse_if_used()  # again, now that it is locked
            self.folder.begin(noted)
            return
        try:
            optimizer.load_state_dict(self.checkpoint.optimizer, self.checkpoint.step)
        except ValueError as error:
            raise OptionError(f"cannot resume from {self.folder.last}: {error}; was --optimizer changed?") from None
        if task.corpus_sha256 != self.checkpoint.corpus_sha256:
            self.refuse_other_text()
        self.folder.rewind(self.checkpoint.step)
        self.folder.note_options(noted)
        say(f"resuming after {counted(self.checkpoint.step, 'step')}")

    def refuse_other_text(self) -> None:
        """Raise OptionError if the text of a resumed run is a different one, unless the command line names it."""
        changed = "this is not the text on which the run was trained so far"
        if not self.names_text:
            name = next((name for name in self.options.FILES if getattr(self.options, name)), "dataset")
            advice = f"restore that text, or name this one with --{name} to continue on it"
            raise OptionError(f"cannot resume {self.folder.path}: {changed}; {advice}")
        say(f"warning: {changed}")


def read_setup(argv: list[str], families: Mapping[str, Family]) -> RunSetup:
    """Read the command line. The available options depend on the preset or weights that it names.

    Args:
        families: by name; the first is that of a command that names none.
    Raises: UserError with one sentence if something is wrong, before any text is fetched.
    """
    presets = list_presets(PRESETS)
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
        f"{', '.join(presets)}",
        common=COMMON,
        epilog="\n".join([*listed("presets", presets), *listed("sizes, for --dry_run only", SIZES), *explained]),
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
    size = named if named in SIZES else None
    if not options.dry_run and (size or {"watts", "flops_per_second"} & given.keys()):
        what = size or ("--watts" if "watts" in given else "--flops_per_second")
        raise OptionError(f"{what} is only for estimates of the cost: add --dry_run")
    if size and (files := [name for name in family.options.FILES if name in given]):
        raise OptionError(f"--{files[0]} changes nothing in the cost of {size}, which reads no text: omit it")
    origin = "resume" if options.resume else options.init_from
    if origin == "resume" and options.overwrite:
        raise OptionError("--resume continues a run and --overwrite starts it again: omit one of them")
    if options.resume and given.get("init_from", "resume") not in ("scratch", "resume"):
        start = f"--init_from {options.init_from} starts a new one"
        raise OptionError(f"--resume continues a run and {start}: omit one of them")
    name = default_name(family, named, origin, given).lstrip(".") or "text"  # of ...txt the stem is ..
    folder, checkpoint, trained = RunFolder(options.out_dir or Path("out") / name), None, None
    if origin == "resume":
        checkpoint = load_checkpoint(folder.last, optimizer=True)
        check_family(folder.last, checkpoint, family.name)
        if checkpoint.base:
            trained = family.read_base(folder.last, checkpoint.base)
            family.check_base(folder.last, checkpoint, trained)
        options = resumed_options(family, checkpoint, given, folder, trained)
    elif origin != "scratch":
        asked = base | given if named else given  # the default preset does not count as a request
        trained = load_origin(family, origin)
        options = adapted_options(family, trained, base, given, asked)
    estimated = size if origin == "scratch" else None
    setup = RunSetup(family, options, folder, checkpoint, trained, estimated, names_text(family, given))
    check_options(setup)
    check_adapting(setup, given)
    if origin != "resume" and not (options.overwrite or options.dry_run or options.profile):
        folder.refuse_if_used()
    texts = options.UNNAMED.get(named, ())
    if texts and origin == "scratch" and not options.dry_run and not names_text(family, given):
        options.dataset, stand_in = first_available(options, texts)
        if stand_in and options.dataset in presets:  # which has its own settings and folder
            setup = read_setup([options.dataset, *argv], families)
        setup.stand_in = stand_in
    return setup


def refuse_name(word: str) -> None:
    """Raise OptionError for a word that names no preset: say what it may mean, or which presets there are."""
    if os.path.exists(word) or Path(word).suffix:
        option = "init_from" if os.path.isdir(word) or Path(word).suffix == ".safetensors" else "text"
        raise OptionError(f"{word} is not a preset; did you mean: python train.py --{option} {quoted(Path(word))}")
    find_preset(PRESETS, word)


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
        path = Path(place)
        if os.path.isdir(path) and not is_pretrained_folder(path):
            path = RunFolder(place).last
        if found := family_of_weights(path, [*families.values()]):
            return found, named
    return next(iter(families.values())), named


def is_preset(word: str | None) -> bool:
    """Whether a word names a preset, the size of a known model, or a file of settings."""
    return word is not None and (Path(word).suffix == ".toml" or word in {*list_presets(PRESETS), *SIZES})


def datasets_of(family: Family) -> set[str]:
    """The only names that --dataset of a family accepts; empty if it accepts others too."""
    return {*next(field.metadata["choices"] or () for field in fields(family.options) if field.name == "dataset")}


def settings_of(name: str) -> dict[str, Any]:
    """The settings of a preset, or of a size, and its family."""
    file = Path(name) if Path(name).suffix == ".toml" and os.path.isfile(name) else None
    return read_size(name)[0] if name in SIZES else read_preset(file or find_preset(PRESETS, name))


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


def check_options(setup: RunSetup) -> None:
    """Choose the device and the number of workers, and check the options."""
    options = setup.options
    options.device = choose_device(options)
    options.workers = number_of_workers(options)
    if options.exchange == "bfloat16" and options.dtype == "float64":
        raise OptionError("--exchange bfloat16 would waste the digits of --dtype float64: omit one of them")
    if options.exchange == "bfloat16" and launched()[1] == 1:
        say("note: --exchange bfloat16 changes nothing without mpirun")
    if options.min_lr is not None and options.min_lr > options.learning_rate:
        rates = f"--min_lr {options.min_lr:g} is above --learning_rate {options.learning_rate:g}"
        advice = "choose a smaller one, or omit it for a tenth of the peak"
        raise OptionError(f"{rates}, but the learning rate ends there: {advice}")
    options.check(learns_tokenizer=setup.tokenizer is None)
    for name in options.paths():
        paths = getattr(options, name)
        for path in [paths] if isinstance(paths, str) else paths:
            if path and not os.path.exists(path):
                raise CorpusError(f"--{name} {path}: there is no such file")


def check_adapting(setup: RunSetup, given: Mapping[str, Any]) -> None:
    """Check the options of freezing and of adapters, before any text is fetched.

    Raises: OptionError if they contradict each other, or do not fit the weights.
    """
    options, trained = setup.options, setup.trained
    extra = [name for name in ("lora_alpha", "lora_targets", "lora_dropout") if name in given and not options.lora_rank]
    advice = "add --lora_rank, such as --lora_rank 8"
    if extra:
        raise OptionError(f"--{extra[0]} changes nothing without a rank: {advice}")
    if options.quantize and not options.lora_rank:
        reason = "quantized weights cannot learn, only changes added to them can"
        raise OptionError(f"--quantize {options.quantize}: {reason}: {advice}")
    if not options.adapts or setup.named:
        return
    name = "lora_rank" if options.lora_rank else "freeze"
    if options.lora_rank and options.freeze:
        raise OptionError("--lora_rank freezes all weights of --init_from already: omit --freeze")
    if trained is None:
        raise OptionError(f"--{name} is for weights that are trained already: add --init_from BASE")
    if trained.adapter:
        problem = f"--{name} needs a whole model, but {trained.adapter} is an adapter"
        command = f"python -m extra.adapters.merge {quoted(trained.path)} {quoted(trained.adapter)} OUT.safetensors"
        raise OptionError(f"{problem}: fold it into its base first, with {command}")
    tokenizer = trained.tokenizer
    config = options.model_config(tokenizer.vocab_size, tokenizer.specials)
    options.adapt(setup.family.model_of(config).blueprint(config), setup.freezable)


def number_of_workers(options: TrainOptions) -> int:
    """The number of processes that share the work. The results of a run depend on it, in the last digits.

    Raises: OptionError if there are more than can share a batch.
    """
    limit, ranks = options.max_workers() if options.device == "cpu" else 1, launched()[1]
    if ranks > 1 and options.workers not in (0, ranks):
        say(f"note: the {ranks} processes that mpirun started replace --workers {options.workers}")
    wanted, by = (ranks, f"mpirun -n {ranks}") if ranks > 1 else (options.workers, f"--workers {options.workers}")
    if wanted > limit:
        reason = "each needs a part of the batch" if options.device == "cpu" else "one keeps a GPU busy"
        raise OptionError(f"{by}: {reason}; use at most {limit}")
    return wanted or min(MAX_DEFAULT_WORKERS, available_cores(), limit)


def warn_of_unknown(task: Task) -> None:
    """Warn about characters or words of the text that the tokenizer of the weights lacks."""
    if not (counts := task.unknown()):
        return
    often = sorted(counts, key=lambda character: (-counts[character], character))
    named = ", ".join(f"{character!r} {counts[character]:,}" for character in often[:10])
    more = f" and {len(often) - 10} more" if len(often) > 10 else ""
    what = "words" if task.tokenizer.kind in ("word", "wordpiece") else "characters"
    unknown = f"{sum(counts.values()):,} {what} of the text are unknown to the tokenizer of these weights"
    say(f"warning: {unknown}, which cannot tell them apart: {named}{more}")
