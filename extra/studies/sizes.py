"""Models by name that nobody trains here: `python train.py gpt3 --dry_run` says what they would cost.

Each is a file in presets/extra/sizes/ with the options of its family, like a preset. If a training run was published
with its time and hardware (published.toml), these are shown next to the operations that are counted.
"""

from pathlib import Path
from typing import NamedTuple

from extra.options import OWN_PRESETS
from training.cli.options import PRESET_FOLDERS, list_presets, read_preset

FOLDER = OWN_PRESETS / "sizes"
SIZES = list_presets(FOLDER)  # each name, with one line for --help
PUBLISHED = Path(__file__).with_name("published.toml")
PRESET_FOLDERS[FOLDER] = "sizes, for --dry_run only"


class Published(NamedTuple):
    """What a training run took, according to its authors.

    Attributes:
        hours: processor hours, summed over all processors.
        how: the same in words.
        capacity: floating-point operations per second of one processor, according to them or its manufacturer.
        source: where this is published.
        watts: power of one processor; 0: not published.
    """

    hours: float
    how: str
    capacity: float
    source: str
    watts: float = 0.0

    @property
    def operations(self) -> float:
        """Time x capacity: what the processors could have computed in that time."""
        return self.hours * 3600 * self.capacity


def published_of(name: str) -> Published | None:
    """What the training of a model in SIZES took, if that was published."""
    facts = read_preset(PUBLISHED, "file")
    return Published(**facts[name]) if name in facts else None
