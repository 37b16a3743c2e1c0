"""`sample.py` with a model of pictures: which class a picture belongs to, and where a Vision Transformer looked.

**Attention rollout.** The weights of one layer say which patches each patch reads, but what it reads there has come
from other patches, through the layers below. Rollout follows the path through all layers: with A the mean of a layer's
heads, and half of every vector staying as it is, because of the residual connections,

    R = (A_L / 2 + I / 2) ... (A_2 / 2 + I / 2) (A_1 / 2 + I / 2)

Row t of R says how much of each patch is in the vector t at the end. The picture shows the row of the class token, or
the mean of all rows.

Reference: Abnar, Zuidema 2020 (arXiv:2005.00928), section 3.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from extra.corpora.pictures import named_picture
from extra.encoders.vit import ViT
from extra.inside import look_inside, numbers
from extra.plots.figure import Picture, write
from extra.pretrained.vit import resampling
from extra.tokenizers.pixels import PixelTokenizer
from text.decoding.sample_options import refuse_others
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import OptionError
from tinygrad_lite.nn import Module
from tinygrad_lite.tensor import Tensor
from training.cli.console import say, show
from training.family import Trained

KNOWN = {*"image attention explain answers out_dir device quantize adapter dtype".split()}
SHADES = PixelTokenizer(17)  # for printing
MAX_PRINTED = 40  # pixels in a row


def sample(options: Any, given: Collection[str], trained: Trained, model: Module) -> None:
    """Print the most probable classes of a picture, and the picture with what the model attended to.

    With --explain, the page of the picture is written instead.

    Raises: OptionError if the options are not for models of pictures.
    """
    refuse_others(given, KNOWN, "is for models that write; a model of pictures takes")
    if "image" not in given:
        raise OptionError("give a picture: --image FILE.png, or --image test:17 for number 17 of the test pictures")
    if options.explain:
        from extra.explorer.encoders import explain_picture

        explain_picture(options, trained, model)
        return
    picture, about = asked_picture(options, trained)
    with no_grad():
        probabilities = numbers(model(as_input(model, picture)).softmax())[0]
    shown = [picture]
    if isinstance(model, ViT):
        shown.append(rollout_picture(model, picture))
    say(about)
    say(SHADES.printed(*map(small, shown)))
    for number in np.argsort(-probabilities, kind="stable")[: options.answers]:
        show(f"{probabilities[number]:6.1%}  {trained.tokenizer.decode([int(number)])}")
    if options.attention:
        if not isinstance(model, ViT):
            raise OptionError("--attention is for Vision Transformers: this model has no attention")
        write(drawing(*shown, about), Path(options.attention))


def asked_picture(options: Any, trained: Trained) -> tuple[np.ndarray, str]:
    """The picture that --image names, (H, W) or in colour (H, W, 3), from 0 to 255, and a line about it.

    Raises: OptionError if the model reads neither, CorpusError if there is no such picture.
    """
    config = trained.config
    if config.channels not in (1, 3):
        raise OptionError(f"--image: a picture has 1 or 3 numbers for each pixel, this model needs {config.channels}")
    filter_number = resampling(trained.path)
    return named_picture(options.image, trained.dataset, config.image_size, config.channels == 3, filter_number)


def as_input(model: Module, picture: np.ndarray) -> Tensor:
    """A picture, (H, W) or (H, W, 3) from 0 to 255, as the model's input: (1, H, W, channels) from -1 to 1."""
    pixels = picture.reshape(1, *picture.shape[:2], -1).astype(np.float32)
    return Tensor(pixels / 127.5 - 1, device=model.device)


def gray(picture: np.ndarray) -> np.ndarray:
    """The brightness of a picture, which may have colours: (H, W)."""
    return picture.mean(axis=-1) if picture.ndim == 3 else picture


def small(picture: np.ndarray) -> np.ndarray:
    """A picture in gray with at most MAX_PRINTED pixels in a row, each the mean of a square."""
    step = -(-len(picture) // MAX_PRINTED)
    side = len(picture) // step
    return gray(picture)[: side * step, : side * step].reshape(side, step, side, step).mean(axis=(1, 3))


def rollout(attention: np.ndarray) -> np.ndarray:
    """How much of each position is in each vector at the end, given all weights (L, H, T, T): (T, T)."""
    whole = np.eye(attention.shape[-1])
    for weights in attention.mean(axis=1):
        whole = (weights + np.eye(len(weights))) / 2 @ whole
    return whole


def rollout_picture(model: ViT, picture: np.ndarray) -> np.ndarray:
    """How much of each patch is in the vector that the class is read from, as a picture (H, W) of the same size.

    Each patch has one brightness; the strongest is 255.
    """
    config = model.config
    whole = rollout(look_inside(model, as_input(model, picture)).attention)
    shares = whole.mean(axis=0) if config.pooling == "mean" else whole[0, 1:]
    strengths = shares.reshape(config.rows, config.rows)
    return np.kron(255 * strengths / strengths.max(), np.ones((config.patch_size, config.patch_size)))


def drawing(picture: np.ndarray, looked: np.ndarray, title: str) -> Picture:
    """The picture, and next to it the same under the rollout."""

    def draw(figure: Any) -> None:
        for number, axes in enumerate(figure.subplots(1, 2)):
            axes.imshow(picture, cmap="gray", vmin=0, vmax=255)
            if number:
                axes.imshow(looked, cmap="inferno", alpha=0.6, vmin=0, vmax=255)
            axes.set_title(("the picture", "where the model looked")[number])
            axes.set_axis_off()

    caption = (
        "Attention rollout: how much of each patch is in the vector from which the class is read, through all layers. "
        "The brighter a patch, the more; the brightest has the largest share."
    )
    arrays = {"picture": picture, "rollout": looked}
    return Picture(title, caption, (6.0, 3.2), draw, arrays=arrays, has_photographs=True)
