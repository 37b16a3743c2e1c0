"""A model's settings, and where they meet the outside: as JSON in a checkpoint, and as options of train.py."""

import dataclasses
import functools
import reprlib
from collections.abc import Mapping
from typing import Any

from tinygrad_lite.config import ModelConfig
from tinygrad_lite.errors import CheckpointError, OptionError
from training.cli.options import allowed, base_type, check, fields_of


def read_model_config(cls: type[ModelConfig], data: Mapping[str, Any]) -> Any:
    """The settings of a model in a checkpoint, checked by their ranges and choices.

    Raises: CheckpointError if one is missing, unknown, or has a wrong type or range, or if they do not fit
    together.
    """
    (known, kinds), values = fields_of(cls), {}
    # Settings that these models do not have may be there, with the values that all of them have.
    data = {name: value for name, value in data.items() if name in known or getattr(cls, name, cls) != value}
    if not cls.ALWAYS | known.keys() - cls.chosen().keys() <= data.keys() <= known.keys():
        raise CheckpointError(f"the model's settings are {sorted(data)}, expected {sorted(known)}")
    for name, value in data.items():
        label = f"the model's setting {name} cannot be {reprlib.repr(value)}"
        if base_type(kinds[name]) is int and type(value) is float:  # which is allowed for an option: --n_layer 1e1
            raise CheckpointError(f"{label}: must be {allowed(known[name], kinds[name])}")
        try:
            values[name] = check(known[name], kinds[name], value, label)
        except OptionError as error:
            raise CheckpointError(str(error)) from None
    config = cls(**values)
    if misfit := config.misfit():
        raise CheckpointError(f"the model's settings do not fit together: {misfit}")
    return config


def settings_of(config: type[ModelConfig]) -> Any:
    """The field `config` of a dataclass of options: a model's settings, each of which is an option, too."""
    return dataclasses.field(default_factory=functools.partial(unfinished, config), metadata={"contains": config})


def unfinished(config: type[ModelConfig]) -> ModelConfig:
    """The defaults, before a tokenizer decides the size of the vocabulary and the ids of special tokens."""
    ids = {name: number for number, name in enumerate(config.special_fields())}
    return config(vocab_size=len(ids) + 1, **ids)
