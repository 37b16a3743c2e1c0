"""What surrounds a word changes its vector: a pronoun, a word with two meanings, and what BERT's positions learned.

    python docs/course/17-encoders/contexts.py          MiniLM, a BERT that is fetched first: 84 MB

Three tables, and contexts.svg. The first is about sentences whose last word decides what *it* is: does *it* look from
one noun to the other when this word is replaced? In some pairs each of the two words suits one noun only (a street
cannot be tired), in others it suits both, and the sentence must be understood (Levesque et al. 2012, "The Winograd
schema challenge").
"""

import sys
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "15-inside"))
from svg import COLOURS, Page, check_plot

from extra.encoders.bert import Bert
from extra.encoders.family import BERT
from extra.encoders.words import whole_sequence
from extra.inside import Inside, look_inside, pieces
from extra.plots.vectors import cosines
from text.tokenizers.base import Tokenizer
from tinygrad_lite import Tensor
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from tinygrad_lite.transformer import sinusoidal_positions
from training.cli.command_line import read_command
from training.cli.console import run_command

# A sentence, two endings, and the noun that *it* is with each.
SUITS_ONE = [
    ("The animal didn't cross the street because it was too", "tired", "wide", "animal", "street"),
    ("The cat did not enter the house because it was too", "hungry", "expensive", "cat", "house"),
    ("The bird left the tree because it was too", "nervous", "tall", "bird", "tree"),
    ("The horse did not use the bridge because it was too", "tired", "narrow", "horse", "bridge"),
    ("The dog did not cross the river because it was too", "tired", "deep", "dog", "river"),
    ("The child did not eat the soup because it was too", "sleepy", "hot", "child", "soup"),
    ("The cow did not enter the field because it was too", "sick", "wet", "cow", "field"),
]
SUITS_BOTH = [
    ("The trophy did not fit into the suitcase because it was too", "big", "small", "trophy", "suitcase"),
    ("The ball broke the table because it was made of", "steel", "glass", "ball", "table"),
    ("The truck passed the bus because it was going so", "fast", "slowly", "truck", "bus"),
    ("I poured water from the bottle into the cup until it was", "empty", "full", "bottle", "cup"),
    ("The dog chased the cat because it was so", "hungry", "scared", "dog", "cat"),
    ("The car could not pass the bridge because it was too", "heavy", "old", "car", "bridge"),
    ("The book did not fit on the shelf because it was too", "thick", "small", "book", "shelf"),
]
# Words with two meanings, and three sentences for each.
MEANINGS = {
    "bank": (
        ["He sat on the bank of the river.", "Trees grow on the bank of the stream.", "The boat lay at the bank."],
        ["She put money into the bank.", "The bank gave him a loan.", "He works as a clerk in a bank."],
    ),
    "bat": (
        ["The bat hung from the ceiling of the cave.", "A bat hunts insects at night.", "The bat spread its wings."],
        ["He hit the ball with a bat.", "She bought a wooden bat for the game.", "The player swung the bat."],
    ),
    "spring": (
        ["Flowers bloom in spring.", "After the winter comes spring.", "The birds return each spring."],
        ["The spring of the clock is broken.", "A steel spring pushes the door.", "The spring was bent and rusty."],
    ),
}
DISTANCES = (1, 2, 8, 64)


@dataclass
class ContextsOptions:
    """The options of the experiment."""

    plot: str = option("contexts.svg", "plot to write: .svg", is_path=True)


@dataclass
class Reader:
    """A model that reads sentences."""

    model: Bert
    tokenizer: Tokenizer

    def read(self, sentence: str, *words: str) -> tuple[Inside, list[int], list[str]]:
        """What the model computes, where these words are in the sentence, and its tokens.

        Raises: OptionError if one of them is not one token of it.
        """
        ids = whole_sequence(self.tokenizer, sentence)
        tokens = pieces(self.tokenizer, ids.tolist())
        if missing := set(words) - set(tokens):
            raise OptionError(f"{min(missing)!r} is not one token of {sentence!r} for this model")
        found = look_inside(self.model, Tensor(ids[None], dtype=np.int64))
        return found, [tokens.index(word) for word in words], tokens


def pronoun(reader: Reader, sentence: str, ending: str, one: str, other: str) -> tuple[np.ndarray, np.ndarray]:
    """How much more *it* has to do with one noun than with the other.

    Returns: the difference of the attention weights (L, H), and of the cosines of their vectors (L + 1,).
    """
    found, (it, a, b), _ = reader.read(f"{sentence} {ending}.", "it", one, other)
    near = np.stack([cosines(x) for x in found.stream])[:, it]
    return found.attention[:, :, it, a] - found.attention[:, :, it, b], near[:, a] - near[:, b]


def meanings(reader: Reader, word: str, kinds: tuple[list[str], list[str]]) -> np.ndarray:
    """The mean cosines of a word's vectors in two sentences with the same meaning, and in two with different ones.

    Returns: (L + 1, 2).
    """
    vectors = []
    for sentence in [*kinds[0], *kinds[1]]:
        found, (place,), _ = reader.read(sentence, word)
        vectors.append(found.stream[:, place])
    near, half = np.stack([cosines(x) for x in np.stack(vectors, axis=1)]), len(kinds[0])
    same = [(i, j) for i, j in combinations(range(len(vectors)), 2) if (i < half) == (j < half)]
    different = list(product(range(half), range(half, len(vectors))))
    return np.stack([near[:, *np.transpose(pairs)].mean(-1) for pairs in (same, different)], axis=-1)


def at_distance(codes: np.ndarray, distance: int) -> float:
    """The mean cosine of two rows that are so far apart."""
    return float(np.diagonal(cosines(codes), distance).mean())


def draw(reader: Reader, layer: int, head: int, file: str) -> None:
    """What *it* looks at in the first sentence with either ending, side by side."""
    sentence, *endings = SUITS_ONE[0][:3]
    title = f"What “it” looks at: layer {layer + 1}, head {head + 1}"
    page = Page(680, 400, title)
    for left, ending in zip((0, 340), endings, strict=True):
        found, (it,), tokens = reader.read(f"{sentence} {ending}.", "it")
        for row, (token, weight) in enumerate(zip(tokens, found.attention[layer, head, it], strict=True)):
            y = 56 + 21 * row
            page.box(left + 70, y - 14, 90, 19, COLOURS[0], 0.75 * float(weight))
            page.text(left + 115, y, token, "middle", more='font-weight="bold"' * (token == ending))
            page.text(left + 62, y, f"{weight:.0%}", "end")
            if weight >= 0.01:
                page.line([(left + 230, 52 + 21 * it), (left + 160, y - 4)], COLOURS[0], round(8 * float(weight), 2))
        page.text(left + 236, 56 + 21 * it, "it", more='font-weight="bold"')
    page.write(file)


def main(argv: list[str]) -> int:
    """Print the three tables and draw the picture."""
    about = "What the words around it make of a word's vector."
    command = "python docs/course/17-encoders/contexts.py"
    options, names = read_command(ContextsOptions, argv, command, about, "CHECKPOINT")
    check_plot(options.plot)
    trained = BERT.read(Path(names[0] if names else "minilm"))
    reader = Reader(trained.make_model(), trained.tokenizer)
    sentence, *endings, one, other = SUITS_ONE[0]
    first, second = (pronoun(reader, sentence, ending, one, other)[0] for ending in endings)
    layer, head = map(int, np.unravel_index((first - second).argmax(), first.shape))
    print(
        f"1. it: first noun - second, attention of layer {layer + 1}, head {head + 1}, and cosine after the last layer"
    )
    for title, pairs in (("each ending suits one noun", SUITS_ONE), ("each suits both", SUITS_BOTH)):
        print(f"\n{title:<44}{'attention':<18}cosine")
        for sentence, *endings, one, other in pairs:
            (a, near), (b, far) = (pronoun(reader, sentence, ending, one, other) for ending in endings)
            row = f"{one}, {other}: {endings[0]} → {endings[1]}"
            print(f"{row:<44}{a[layer, head]:+.2f} → {b[layer, head]:+.2f}    {near[-1]:+.2f} → {far[-1]:+.2f}")
    print("\n2. one word: cosine of two vectors, same meaning / different meanings\n")
    found = {word: meanings(reader, word, kinds) for word, kinds in MEANINGS.items()}
    print(f"{'layers':<8}" + "".join(f"{word:<14}" for word in found).rstrip())
    for layer_number in range(len(first) + 1):
        cells = "".join(f"{rows[layer_number][0]:.2f} / {rows[layer_number][1]:.2f}   " for rows in found.values())
        print(f"{layer_number:<8}{cells}".rstrip())
    codes = trained.weights["position_embedding.weight"]
    print("\n3. positions: mean cosine of two vectors, by distance\n")
    print(f"{'':<14}" + "".join(f"{distance:>6}" for distance in DISTANCES))
    for title, table in (("learned", codes), ("sinusoidal", sinusoidal_positions(*codes.shape))):
        print(f"{title:<14}" + "".join(f"{at_distance(table, distance):6.2f}" for distance in DISTANCES))
    draw(reader, layer, head, options.plot)
    return 0


if __name__ == "__main__":
    run_command("contexts", main)
