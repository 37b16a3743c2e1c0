"""Pictures for the GPT: it reads a picture pixel by pixel, row by row, and continues one that is cut off.

    <start> p p p p ... p      ids of a window
    p p p p p ... p            targets: the pixels

To the model a shade is a token like any other; it must learn that a pixel has neighbours above and below.

Reference: Chen et al. 2020, "Generative Pretraining from Pixels" (ICML).
"""

import itertools
import math
from collections.abc import Collection
from typing import Any

import numpy as np

from extra.corpora.epochs import items_in_epochs
from extra.corpora.pictures import load_pictures, named_picture
from extra.gpt.options import GPTOptions
from extra.plots.figure import Picture, write_each
from extra.tokenizers.pixels import START, PixelTokenizer
from gpt.data import TextData
from gpt.model import GPT
from gpt.task import TextTask
from text.decoding.sample_options import refuse_others
from text.decoding.sampling import generate
from tinygrad_lite.errors import OptionError, counted
from training.cli.console import say, show
from training.corpora.texts import Corpus
from training.family import Trained

# Options of sample.py for these models.
KNOWN = {*"image keep_rows out num_samples temperature greedy seed out_dir device quantize adapter dtype".split()}


class PixelData(TextData):
    """Pictures as one long row of tokens, in which each window is a picture: <start> and its pixels."""

    @property
    def apart(self) -> int:
        """How far apart windows begin."""
        return self.options.config.block_size + 1

    def starts(self, step: int, sequences: int) -> np.ndarray:
        """Where the pictures of one update begin."""
        items = len(self.train) // self.apart
        return self.apart * items_in_epochs(self.options.seed, step * sequences, sequences, items)


def prepare_pictures(options: GPTOptions, tokenizer: PixelTokenizer | None = None) -> TextData:
    """The pictures of a data set as one long row of tokens, in which each window is a picture.

    Raises: OptionError if a window is not as long as a picture.
    """
    data = load_pictures(options.dataset)
    pixels = data.train.pixels[0].size
    if options.config.block_size != pixels:
        raise OptionError(f"--block_size {options.config.block_size}: the pictures of {data.name} have {pixels} pixels")
    tokenizer = tokenizer or PixelTokenizer(options.vocab_size)
    parts = (data.brightness(part.pixels) for part in (data.train, data.validation))
    train, held_out = (as_tokens(tokenizer, pictures).ravel() for pictures in parts)
    corpus = Corpus(data.name, "", data.source, data.licence, data.sha256)
    return PixelData(options, corpus, tokenizer, train, held_out, chars_per_token=1.0)


class PixelsTask(TextTask):
    """Pictures whose pixels are tokens, and one that the model draws."""

    prepare, asked_with, unit = staticmethod(prepare_pictures), "image", "pixel"

    def describe(self) -> str:
        """One line about the pictures."""
        data, options, size = self.data, self.options, self.options.config.block_size
        train, held_out = (len(part) // data.apart for part in (data.train, data.held_out))
        return (
            f"{data.tokenizer.shades} shades; {train:,} pictures of {size:,} pixels to learn from, "
            f"{held_out:,} held out; an epoch is "
            f"{counted(math.ceil(train / (options.batch_size * options.gradient_accumulation_steps)), 'step')}"
        )

    def sample(self, model: GPT) -> str:
        """A picture from nothing; always with the same random numbers."""
        side = math.isqrt(self.options.config.block_size)
        empty = np.zeros((side, side), np.uint8)
        drawn = complete(model, self.tokenizer, empty, keep_rows=0, samples=1, seed=self.options.seed)
        return self.tokenizer.printed(drawn[0])


def as_tokens(tokenizer: PixelTokenizer, pictures: np.ndarray) -> np.ndarray:
    """Pictures (n, H, W) of brightness from 0 to 255 as rows of tokens (n, 1 + H W), each after <start>."""
    rows = tokenizer.from_brightness(pictures).reshape(len(pictures), -1)
    return np.concatenate([np.full((len(rows), 1), tokenizer.specials[START], np.uint16), rows], axis=1)


def complete(
    model: GPT, tokenizer: PixelTokenizer, picture: np.ndarray, keep_rows: int, samples: int, **settings: float
) -> np.ndarray:
    """Continue the first rows of a picture (H, W) in several ways: (samples, H, W) pictures.

    Args:
        settings: temperature, seed and so on, as `generate` takes them.
    """
    height, width = picture.shape
    prompt = as_tokens(tokenizer, picture[None])[:, : 1 + keep_rows * width].astype(np.int64)
    missing = (height - keep_rows) * width
    start = model.start(np.repeat(prompt, samples, axis=0))
    tokens = generate(model.step, *start, max_new_tokens=missing, forbidden=tokenizer.textless, **settings)
    new = np.array([row.copy() for row in tokens]).T.reshape(samples, height - keep_rows, width)
    kept = np.repeat(tokenizer.from_brightness(picture[None, :keep_rows]), samples, axis=0)
    return np.rint(np.concatenate([kept, new], axis=1) * (255 / (tokenizer.shades - 1))).astype(np.uint8)


def show_completions(options: Any, given: Collection[str], trained: Trained, model: GPT) -> None:
    """Print completions of a picture, or pictures from nothing, and write all to a file if one is named."""
    refuse_others(given, KNOWN, "is for models of text; a model of pixels takes")
    tokenizer: PixelTokenizer = trained.tokenizer
    side = math.isqrt(model.config.block_size)
    picture, about, keep_rows = np.zeros((side, side), np.uint8), "from nothing", 0
    if options.image:
        picture, about = named_picture(options.image, trained.dataset, side)
        keep_rows = side // 2 if options.keep_rows < 0 else options.keep_rows
        if keep_rows >= side:
            raise OptionError(f"--keep_rows {keep_rows}: the pictures have {side} rows, so keep at most {side - 1}")
    settings = {"temperature": 0.0 if options.greedy else options.temperature, "seed": options.seed}
    completed = complete(model, tokenizer, picture, keep_rows, options.num_samples, **settings)
    say(about)
    show("\n\n".join(map(tokenizer.printed, completed)))
    if options.out:
        write_each(drawing(picture, completed, keep_rows, about), options.out)


def drawing(picture: np.ndarray, completed: np.ndarray, keep_rows: int, about: str) -> Picture:
    """The original, what the model was given of it, and its completions, side by side."""
    given = picture.copy()
    given[keep_rows:] = 0
    shown = [("original", picture), ("given", given), *((f"{n}", one) for n, one in enumerate(completed, start=1))]
    columns = min(6, len(shown))
    rows = -(-len(shown) // columns)

    def draw(figure: Any) -> None:
        for axes, entry in itertools.zip_longest(figure.subplots(rows, columns, squeeze=False).flat, shown):
            axes.set_axis_off()
            if entry:
                axes.imshow(entry[1], cmap="gray", vmin=0, vmax=255)
                axes.set_title(entry[0], fontsize=8)

    given = counted(keep_rows, "row")
    caption = f"The model was given the first {given} and drew the others, each pixel from its distribution."
    arrays = {"picture": picture, "completed": completed}
    return Picture(about, caption, (1.1 * columns, 1.3 * rows), draw, arrays=arrays, has_photographs=True)
