"""The models with what the shelf adds to them, where that is; so the core's tests try the shelf's settings, too."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from families import FAMILIES

FAMILY = FAMILIES["gpt"]
GPTOptions, load_trained, Seq2SeqOptions = FAMILY.options, FAMILY.read, FAMILIES["seq2seq"].options
GPTConfig, Seq2SeqConfig = type(GPTOptions().config), type(Seq2SeqOptions().config)


def has(settings: Mapping[str, Any], config: type = GPTConfig) -> bool:
    """Whether that model has all these settings, and these choices; with the shelf, it has all that tests name."""
    choices = {name: field.metadata["choices"] for name, field in config.chosen().items()}
    found = all(name in choices and value in (choices[name] or [value]) for name, value in settings.items())
    assert found or not find_spec("extra"), settings
    return found
