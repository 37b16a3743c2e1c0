"""Goethe's works: six books of prose and 23 plays to learn from and to predict, split by whole works.

The files are in two public collections, at addresses that each name one commit, and the SHA-256 of every file is listed
here: what is used is what was intended, whoever delivers it. `pinned_file` takes a file from the cache's folder
`sources`, where it can also be put by hand, and downloads it only if it is missing.

**The split.** Pieces of one work in both parts would make prediction look easier than it is: names, phrases and plots
recur. So two whole works are held out, together about a tenth of all characters: a novel in prose, *Die
Wahlverwandtschaften*, and a play in verse, *Iphigenie auf Tauris*. They were chosen because they stand alone: of their
runs of eight words only four occur anywhere else here. They come last; the recipe in texts.py has the
line with which they begin.

**What is left out** of the part to learn from, paragraph by paragraph (`without_repeats`):

- those that share a run of eight words with the held-out works, or with the text that a second corpus holds out,
  `known`: a model of these works can then be measured on that corpus too, which contains passages of them;
- those that share such a run with an earlier work, so that nothing is learned twice: half of the *Urfaust* recurs in
  *Faust*, and *Proserpina* in *Der Triumph der Empfindsamkeit*. (Of *Faust*, only the plays in TEI are taken.)
"""

import re
from collections.abc import Iterable

from workshop.cli.console import say
from workshop.corpora import fetch
from workshop.corpora.cleaning import normalise, spread, word_runs
from workshop.corpora.pinned import pinned_files
from workshop.corpora.tei import play_text

RUN = 8  # words in a row that do not recur by chance


GITHUB = "https://raw.githubusercontent.com/"
PROSE_FOLDER = GITHUB + "computationalstylistics/68_german_novels/4cc71e1d44647244b3df29474180a8a5e4fe8290/corpus/"
PROSE = {  # the work's title, and the words with which the work itself begins
    "werther": ("Die Leiden des jungen Werther", "Erstes Buch"),
    "lehr": ("Wilhelm Meisters Lehrjahre", "Erstes Buch"),
    "wander": ("Wilhelm Meisters Wanderjahre oder die Entsagenden", "Erstes Buch"),
    "italiensche": ("Italienische Reise", "Auch ich in Arkadien!"),
    "farbenlehre": ("Zur Farbenlehre. Didaktischer Teil", "Vorwort \n\nOb man nicht"),
    "wahlverwandtschaften": ("Die Wahlverwandtschaften", "Eduard--so nennen wir"),
}
PROSE_SHA256 = {
    "werther": "9fbd011f18c6ac16edd24394ec7bc31994cc05ce6d3b00e666153bc7fa470aa3",
    "lehr": "edd9d5f46a08d1126c0b419ed8787e61cfd2866fb491c95e167225352a63b570",
    "wander": "6083be50a520d5233a1b14f58705ebc14d6938385ba2b1c42fe94797ae58f77d",
    "italiensche": "d8f139f431d144b4cbd4a6b32f5cf6a021ffef554773fd73aa850142d2e4dc70",
    "farbenlehre": "fb8e7486d2f9ecc715111f3b954cdfa3015f543723feed024c4ecc7619f9ab5a",
    "wahlverwandtschaften": "7f9dac80d804fe533c3bc14294f08dbfb029bdaa3629b1ccc3bfbb6ef04e3f74",
}
PLAYS_FOLDER = GITHUB + "dracor-org/gerdracor/1a985284303b4338acb7a6deb51d4c81cc621d2e/tei/"
PLAYS = {
    "clavigo": "dc228383f8478f51f15aab3d35aea126bb1d3a46cbab1d063640215a1c1ea36e",
    "das-jahrmarktsfest-zu-plundersweilern": "36b6f9d69f365283b637046de6a6fe32cd6106cef8b82e26ab32fed527f6c395",
    "der-buergergeneral": "f940db1208201553ac180bf7a11f4841f4428a57279d4983ddce05cd5c4271f3",
    "der-grosskophta": "8346fde542518ec3c045bb14ffd7a31e788534722883ef8c11a593c27ab973bc",
    "der-triumph-der-empfindsamkeit": "aa7574b6275ddd03c53260d9b55b495924442f724b80caa803e95f96cef54be0",
    "des-epimenides-erwachen": "63b300fcb3724df3daa1d0b5f7208e3cb69907fe3beb5e695ab67e47aa5d37e0",
    "die-laune-des-verliebten": "b8c9925fbcab75e772e2e89139a52f6be58ff46772bca9b46df3cc3c8c29f854",
    "die-mitschuldigen": "90ed265532db11e4f3637f52d774f7aebcf252fc22b807ae9d14752bf25eec2d",
    "die-natuerliche-tochter": "6ed846a44e89d203f1fce3eee59d4113a52c546c9b725a45fffa1541d44956d1",
    "die-wette": "25d1340bd1cf2dbc03bec25ae03e9cc928030d24091f969f5f7a9eea746714f3",
    "egmont": "8af1bc6506480a6fe763a378e2d9af26f3d329e667355bebce3503a592e3124f",
    "erwin-und-elmire": "9087a5a95d063a81453617fdd08e8d8ed9c9d29a0d5ba474e87988afc62bccac",
    "faust-der-tragoedie-zweiter-teil": "784c617d2d9e6f5374fb8595af2b624caacc97b3214dc023326c32cbc8bb6a7a",
    "faust-eine-tragoedie": "0ed7b258f4a4494c06f629be4d75595e1642f9ebf52a387e75b074313bf37f73",
    "faust-in-urspruenglicher-gestalt": "71c9a7f55e011576c3727dec83402ea79ffa38d9dea79968d55d8e725814cbd7",
    "goetter-helden-und-wieland": "10efb4e4158de302f4a3928682169dbe3b67eeffe8c9d5daec35a8b0f2f0783d",
    "goetz-von-berlichingen-mit-der-eisernen-hand": "f266d58ff2321c1981d9932555f456fc5cd818cf2b98122d745e598241dcc173",
    "iphigenie-auf-tauris": "8d157fb7f0a3e38cef795034258650876c596f2e766b022ef5b0ac2ed2084d98",
    "pandora": "1dafee9ac1952058040bb164438ba585b40293397b00b654523d87ab5892d92e",
    "proserpina": "6ab215b636ad9e44dc3d621c83e41c7c03bdf011db17fb347f487e9015c97958",
    "satyros": "d59914922d68a6092623d3669ec3e7d715840eb2bcbd20a27915ab96c26d5d8e",
    "stella": "5eae199adf239f28244ba7d533ff20b3ea669d98d168fc74d8dea0f6d5f69b43",
    "torquato-tasso": "7744c08dcc11b93cec88d6c99e4519d8757749913d0680e4bf4c61c09f2e38ef",
}
HELD_OUT_FILES = ("wahlverwandtschaften", "iphigenie-auf-tauris")  # these come last
WERTHER_AND_FAUST = ("werther", "faust-eine-tragoedie")

# Signs that the prose files write differently; and French and Italian letters, which appear in one of them as Czech
# ones.
SIGNS = str.maketrans({"–": "--", **dict.fromkeys("»«", '"'), **dict.fromkeys("›‹‘’", "'")})
MISREAD = str.maketrans("ŕčęňůűČ", "àèêòùûÈ")
# A page's heading in the middle of a sentence; and paragraphs by the editors: names of files, headings, captions.
PAGE_BREAK = re.compile(r"\n\nZur Farbenlehre\s*\n\n(?=[a-zäöü])")
EDITORS = re.compile(
    r"(Johann Wolfgang von Goethe|Hamburger Ausgabe, .*|Wilhelm Meisters .*--Buch .*|[IVX]+\. Buch, .*"
    r"|Die Leiden des jungen Werther von .*|Italienische Reise .*|Italienische Reise-Teil .*|Zur Farbenlehre|<#.*|"
    r".{,60}(Zeichnung|zeichnung|Gemälde|gemäldes) von \w+|.*Hrsg\.\).*)"
)


# ------------------------------------------------------------------------------------------------ the files


def pinned_file(folder: str, name: str, sha256: str) -> bytes:
    """A file of known SHA-256: from the cache's folder `sources`, or else downloaded and put there.

    Raises: CorpusError if it cannot be fetched, or if a different file is delivered.
    """
    return pinned_files({name: sha256}, folder + name, lambda: {name: fetch.https_bytes(folder + name)})[name]


def work(name: str) -> str:
    """One work, fetched and cleaned: its title and its paragraphs, separated by blank lines."""
    if name in PLAYS:
        text = play_text(pinned_file(PLAYS_FOLDER, f"goethe-{name}.xml", PLAYS[name]))
    else:
        file = pinned_file(PROSE_FOLDER, f"goethe_{name}.txt", PROSE_SHA256[name])
        text = prose_text(file.decode("utf-8"), *PROSE[name])
    return normalise(text).translate(SIGNS)


def prose_text(text: str, title: str, begins: str) -> str:
    """The work in a file of prose, without its editors' additions before and within it."""
    _, begins, rest = normalise(text).partition(begins)
    text = PAGE_BREAK.sub(" ", begins + rest).translate(MISREAD)
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return "\n\n".join([title, *(words for words in paragraphs if words and not EDITORS.fullmatch(words))])


# ----------------------------------------------------------------------------------------------- the corpora


def goethe_works(known: str) -> str:
    """All works, the held-out ones last, and a report of what was left out.

    Args:
        known: the held-out text of another corpus, from which nothing may be learned here.
    """
    names = [name for name in (*PROSE, *PLAYS) if name not in HELD_OUT_FILES]
    held_out = [work(name) for name in HELD_OUT_FILES]
    learned, dropped = without_repeats([work(name) for name in names], [*held_out, known])
    sizes = [sum(map(len, part)) for part in (learned, held_out)]
    say(
        f"{len(learned)} works to learn from, {sizes[0]:,} characters; {len(held_out)} held out, {sizes[1]:,} "
        f"characters ({sizes[1] / sum(sizes):.1%}); left out: {dropped[0]:,} paragraphs that share {RUN} words in a "
        f"row with held-out text, {dropped[1]:,} that do so with an earlier work"
    )
    return "\n\n".join([*learned, *held_out]) + "\n"


def without_repeats(works: Iterable[str], held_out: Iterable[str]) -> tuple[list[str], tuple[int, int]]:
    """The works without the paragraphs that share a run of eight words with held-out texts or with an earlier work.

    Returns: the works, and how many paragraphs were left out for either reason.

    >>> without_repeats(["a b c d e f g h", "x a b c d e f g h!\\n\\nC\\n\\ns t u v w x y z"], ["s t u v w x y z"])
    (['a b c d e f g h', 'C'], (1, 1))
    """
    forbidden = set().union(*map(runs, held_out))
    earlier: set[int] = set()
    kept, leaking, repeated = [], 0, 0
    for text in works:
        paragraphs, own = [], set()
        for paragraph in text.split("\n\n"):
            found = runs(paragraph)
            if found & forbidden:
                leaking += 1
            elif found & earlier:
                repeated += 1
            else:
                paragraphs.append(paragraph)
                own |= found
        earlier |= own
        kept.append("\n\n".join(paragraphs))
    return kept, (leaking, repeated)


def runs(text: str) -> set[int]:
    """All runs of eight words in a row, as hashes: six million characters have a million of them."""
    return {hash(run) for run in word_runs(text, RUN) if len(run) == RUN}


def werther_and_faust() -> str:
    """*Werther* and *Faust I* in alternating passages, so that the last tenth, which is held out, has both."""
    return "\n\n".join(spread(*(passages(work(name)) for name in WERTHER_AND_FAUST))) + "\n"


def passages(text: str, length: int = 3000) -> list[str]:
    """A text cut at blank lines into passages of about this many characters.

    >>> passages("Eins\\n\\nZwei\\n\\nDrei", 6)
    ['Eins\\n\\nZwei', 'Drei']
    """
    found = [""]
    for paragraph in text.split("\n\n"):
        if len(found[-1]) >= length:
            found.append("")
        found[-1] += "\n\n" + paragraph if found[-1] else paragraph
    return found
