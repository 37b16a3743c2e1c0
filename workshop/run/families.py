"""The families of models by name. No other file lists them, and only what is used of a family is loaded.

What `sample.py` shows of a model is in the outermost ring, studies/, and is named here for the same reason.

A new family is a new entry here, and a `Family` (workshop/run/family.py) that says what it consists of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workshop.inside import Attention
    from workshop.run.family import Family


@dataclass(frozen=True)
class Entry:
    """Where a family is, and how its weights can be recognised before it is loaded.

    Attributes:
        place: the module and the name of its `Family`.
        page: those of the function that writes the page of --explain, in studies/explorer/.
        layouts: the modules of other programs' layouts that it reads, by the model_type in their config.json.
        fetched: the modules that fetch trained models, by the models' names.
    """

    place: str
    page: str
    layouts: Mapping[str, str] = field(default_factory=dict)
    fetched: Mapping[str, str] = field(default_factory=dict)


GPTS = {"gpt2": "gpt.formats.gpt2", **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), "gpt.formats.llama")}
BERT = {"bert": "encoder.formats.bert"}
FAMILIES = {  # by the name in presets and checkpoints; the first is used by a command that names none
    "gpt": Entry("gpt.family:FAMILY", "gpt:explain", GPTS, {"smollm2": "gpt.smollm2"}),
    "seq2seq": Entry("seq2seq.task:FAMILY", "translation:explain"),
    "bert": Entry("encoder.task:FAMILY", "encoders:explain_text", BERT, {"minilm": "encoder.minilm"}),
    "vit": Entry("encoder.picture_task:VIT_FAMILY", "encoders:explain_picture", {"vit": "encoder.formats.vit"}),
    "cnn": Entry("encoder.picture_task:CNN_FAMILY", "encoders:explain_picture"),
}
DEFAULT = next(iter(FAMILIES))
MODEL_TYPES = sorted(kind for entry in FAMILIES.values() for kind in entry.layouts)


def load_family(name: str) -> Family:
    """The family of this name."""
    return resolve_name(FAMILIES[name].place)


def write_page(family: str, *model_and_options: Any) -> None:
    """Write the page of --explain, with this family's function."""
    resolve_name(f"studies.explorer.{FAMILIES[family].page}")(*model_and_options)


def plot_attention(found: Attention, what: str, file: Path) -> None:
    """Write a picture of attention weights."""
    resolve_name("studies.pictures.attention:plot_attention")(found, what, file)
