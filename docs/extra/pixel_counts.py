"""How many bits does a pixel need by counting alone? A model of pixels must be better than this.

    python docs/extra/pixel_counts.py digits      bits per pixel, by counting with different smoothing

It counts how often each shade follows the pixel to its left and the one above it (`neighbour_bits`).
"""

import numpy as np

from extra.corpora.pictures import RECIPES, load_pictures
from extra.studies.program import NoOptions, program
from extra.tokenizers.pixels import PixelTokenizer
from tinygrad_lite.errors import OptionError
from training.cli.console import run_command, say


def neighbour_bits(train: np.ndarray, held_out: np.ndarray, shades: int, strength: float = 1.0) -> float:
    """Bits per pixel of held-out pictures (n, H, W) by counting, given the pixel to the left and the one above.

    p(x | left, above) = (count(left, above, x) + k p(x | left)) / (count(left, above) + k), and p(x | left) is smoothed
    in the same way by p(x), and p(x) by the uniform distribution. Outside the picture everything is dark.

    Args:
        strength: k, the weight of the less precise distribution, in counts.
    """

    def contexts(pictures: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        padded = np.pad(pictures.astype(np.int64), ((0, 0), (1, 0), (1, 0)))
        return padded[:, 1:, :-1].ravel(), padded[:, :-1, 1:].ravel(), padded[:, 1:, 1:].ravel()

    left, above, x = contexts(train)
    counts = np.zeros((shades, shades, shades))
    np.add.at(counts, (left, above, x), 1)
    p = (counts.sum((0, 1)) + strength / shades) / (counts.sum() + strength)
    p_left = (counts.sum(1) + strength * p) / (counts.sum((1, 2))[:, None] + strength)
    p_both = (counts + strength * p_left[:, None]) / (counts.sum(2, keepdims=True) + strength)
    return float(-np.log2(p_both[contexts(held_out)]).mean())


@program("docs/extra/pixel_counts.py", NoOptions, "NAME", "digits", about_positional=f"one of {', '.join(RECIPES)}")
def main(_: NoOptions, name: str) -> None:
    """Print the bits per pixel that counting reaches."""
    if name not in RECIPES:
        raise OptionError(f"{name}: there is no such data set of pictures, only {', '.join(RECIPES)}")
    data = load_pictures(name)
    tokenizer = PixelTokenizer(17)
    parts = (data.train, data.validation)
    train, held_out = (tokenizer.from_brightness(data.brightness(part.pixels)) for part in parts)
    for strength in (0.1, 1.0, 10.0, 100.0):
        bits = neighbour_bits(train, held_out, tokenizer.shades, strength)
        print(f"{bits:.4f} bits per pixel, smoothed with {strength:g} counts")
    say(f"{tokenizer.shades} shades; {held_out.size:,} pixels of {len(held_out):,} held-out pictures")


if __name__ == "__main__":
    run_command("pixel_counts", main)
