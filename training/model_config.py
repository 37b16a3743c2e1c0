"""A model's settings, and where they meet the outside: as JSON in a checkpoint, and as options of train.py."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Mapping
from typing import Any, ClassVar

from tinygrad_lite.config import ModelConfig
from tinygrad_lite.errors import CheckpointError, OptionError
from training.cli.options import allowed, base_type, check, fields_of


def read_model_config(cls: type[ModelConfig], data: Mapping[str, Any]) -> Any:
    """The settings of a model in a checkpoint, checked by their ranges and choices.

    Raises: CheckpointError if one is missing, unknown, or has a wrong type or range, or if they do not fit
    together.
    """
    (known, kinds), values = fields_of(cls), {}
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


class ModelOptions:
    """What a dataclass of options gets from `model_options`, besides the options."""

    CONFIG: ClassVar[type[ModelConfig]]

    def model_config(self, vocab_size: int, specials: Mapping[str, int] | None = None) -> Any:
        """The model's settings for a vocabulary of this size.

        Args:
            specials: the ids of special tokens by name; None: arbitrary ones, to find the size of the model.
        Raises: OptionError if the options contradict each other.
        """
        names = self.CONFIG.special_fields()
        mark = self.CONFIG.special_token
        ids = specials or {mark(name): number for number, name in enumerate(names)}
        settings = {name: ids[mark(name)] for name in names}
        settings |= {name: getattr(self, name) for name in self.CONFIG.chosen()}
        config = self.CONFIG(vocab_size=vocab_size, **settings)
        if misfit := config.misfit("--"):
            raise OptionError(misfit)
        return config


def model_options(config: type[ModelConfig]) -> type[ModelOptions]:
    """A dataclass with an option for every setting that a user chooses: a base class for the options of a model."""
    kinds = fields_of(config)[1]
    chosen = config.chosen().items()
    fields = {name: dataclasses.field(default=field.default, metadata=field.metadata) for name, field in chosen}
    entries = [(name, kinds[name], field) for name, field in fields.items()]
    return dataclasses.make_dataclass("ModelOptions", entries, bases=(ModelOptions,), namespace={"CONFIG": config})
