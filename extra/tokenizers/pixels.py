"""Pixels as tokens: each brightness is one, and a picture is read row by row, like a text.

    >>> tokenizer = PixelTokenizer(4)
    >>> tokenizer.encode(" -o@@o"), tokenizer.decode([0, 1, 2, 3])
    ([0, 1, 2, 3, 3, 2], ' -o@')

As text, a brightness is a sign that covers more or less of its cell, so that a picture can be printed. Every picture
begins with the special token <start>, from which its first pixel is predicted.

Source: Chen et al. 2020, "Generative Pretraining from Pixels" (ICML), section 2; its 512 colours are 17 shades here.
"""

from collections.abc import Iterable

import numpy as np

from text.tokenizers.base import Tokenizer
from tinygrad_lite.errors import TokenizerError

START = "<start>"
RAMP = " .'`:-~+=xzoXO#%@"  # from dark to bright, on a dark screen
MAX_SHADES = 256


def signs(shades: int) -> list[str]:
    """A sign for each shade, from empty to full; those beyond the ramp are letters of a separate alphabet."""
    if shades > len(RAMP):
        return [chr(0x4E00 + shade) for shade in range(shades)]
    return [RAMP[round(shade * (len(RAMP) - 1) / (shades - 1))] for shade in range(shades)]


class PixelTokenizer(Tokenizer):
    """One token for each of `shades` levels of brightness, and <start>.

    Raises: TokenizerError if there are fewer than 2 shades, or more than 256.
    """

    kind, parts = "pixels", {"specials": list, "shades": int}

    def __init__(self, shades: int, specials: Iterable[str] = (START,)):
        if not 2 <= shades <= MAX_SHADES:
            raise TokenizerError(f"pixels have 2 to {MAX_SHADES} shades")
        if START not in (specials := [*specials]):
            raise TokenizerError(f"pixels need the special token {START}, with which every picture begins")
        self.shades, self._signs = shades, signs(shades)
        super().__init__([sign.encode() for sign in self._signs], specials)

    def encode_text(self, text: str) -> list[int]:
        """The shades of a printed picture; ends of lines are ignored.

        Raises: TokenizerError if there is another character.
        """
        text = text.replace("\n", "")
        if other := set(text) - set(self._signs):
            raise TokenizerError(f"{min(other)!r} is not a pixel: these are {''.join(self._signs)!r}")
        return [self._signs.index(sign) for sign in text]

    def from_brightness(self, pictures: np.ndarray) -> np.ndarray:
        """Brightness of 0 to 255, of any shape, as the nearest shades."""
        return np.rint(pictures.astype(np.float64) * ((self.shades - 1) / 255)).astype(np.uint8)

    def printed(self, *pictures: np.ndarray) -> str:
        """Pictures (H, W) of brightness from 0 to 255 as lines of signs, side by side.

        Each sign is written twice, because it is twice as high as wide.
        """
        rows = zip(*map(self.from_brightness, pictures), strict=True)
        lines = ("  |  ".join("".join(2 * self._signs[shade] for shade in row) for row in line) for line in rows)
        return "\n".join(lines)
