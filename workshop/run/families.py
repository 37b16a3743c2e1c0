"""The families of models by name. No other file lists them, and only what is used of a family is loaded.

A new family is a new entry here, and a `Family` (workshop/run/family.py) that says what it consists of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workshop.run.family import Family


@dataclass(frozen=True)
class Entry:
    """Where a family is, and by what its weights can be recognised before it is loaded.

    Attributes:
        place: the module and the name of its `Family`.
        layouts: the modules of other programs' layouts that it reads, by the model_type in their config.json.
        fetched: the modules that fetch trained models, by the names of these.
    """

    place: str
    layouts: Mapping[str, str] = field(default_factory=dict)
    fetched: Mapping[str, str] = field(default_factory=dict)


LLAMAS = dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), "gpt.formats.llama")
FAMILIES = {  # by the name in presets and checkpoints; the first is that of a command that says nothing else
    "gpt": Entry("gpt.family:FAMILY", {"gpt2": "gpt.formats.gpt2", **LLAMAS}, {"smollm2": "gpt.smollm2"}),
    "seq2seq": Entry("seq2seq.task:FAMILY"),
    "bert": Entry("encoder.task:FAMILY", {"bert": "encoder.formats.bert"}, {"minilm": "encoder.minilm"}),
    "vit": Entry("encoder.picture_task:VIT_FAMILY", {"vit": "encoder.formats.vit"}),
    "cnn": Entry("encoder.picture_task:CNN_FAMILY"),
}
DEFAULT = next(iter(FAMILIES))
MODEL_TYPES = sorted(kind for entry in FAMILIES.values() for kind in entry.layouts)


def load_family(name: str) -> Family:
    """The family of this name."""
    return resolve_name(FAMILIES[name].place)
