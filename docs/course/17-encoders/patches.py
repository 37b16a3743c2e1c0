"""Which patches decide a class? Attention times its gradient, next to rollout; and how far each head looks.

    python docs/course/17-encoders/patches.py out/vit-digits

Rollout takes the mean over the heads and is the same for all classes. Relevance (Chefer et al. 2021, arXiv:2103.15679,
equations 5 and 6) weights each attention by the gradient of a class's logit with respect to it, keeps what is positive,
and adds it up through the layers: R = R + A R, with A = mean over heads of max(0, dlogit/dA * A).

The test: which patches must be blacked out until the model changes its mind?
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np

from extra.corpora.pictures import load_pictures
from extra.encoders.family import VIT
from extra.encoders.looking import rollout
from extra.encoders.vit import ViT
from extra.inside import look_inside
from extra.studies.program import NoOptions, program
from tinygrad_lite import Tensor
from tinygrad_lite.random import keyed_rng
from training.cli.console import run_command

REMOVED = (2, 4, 6, 8)  # patches


def watched(model: ViT) -> list[Tensor]:
    """From now on attention is computed step by step, and its weights are appended to this list."""
    kept: list[Tensor] = []

    def attend(scale, query, key, value, mask, is_causal, dropout_p):
        kept.append((query @ key.transpose(2, 3) * scale).softmax().retain_grad())
        return kept[-1] @ value

    for block in model.blocks:
        block.mixer.attend = partial(attend, block.mixer.scale or block.mixer.head_dim**-0.5)
    return kept


def patches_of(model: ViT, whole: np.ndarray) -> np.ndarray:
    """What each patch contributes to the vector that the class is read from: (N,)."""
    return whole.mean(axis=0) if model.config.pooling == "mean" else whole[0, 1:]


def relevance(model: ViT, kept: list[Tensor], picture: np.ndarray, label: int) -> np.ndarray:
    """The relevance of each patch (N,) of a picture (1, H, W, channels) for a class."""
    kept.clear()
    model(Tensor(picture))[0, label].backward()
    whole = np.eye(kept[0].shape[-1])
    for weights in kept:
        whole = whole + np.maximum(weights.grad.numpy() * weights.numpy(), 0)[0].mean(axis=0) @ whole
    return patches_of(model, whole - np.eye(len(whole)))


def without(model: ViT, picture: np.ndarray, patches: np.ndarray) -> np.ndarray:
    """The picture with these patches in black."""
    size, changed = model.config.patch_size, picture.copy()
    for row, column in zip(*np.divmod(patches, model.config.rows), strict=True):
        changed[:, row * size : (row + 1) * size, column * size : (column + 1) * size] = -1
    return changed


@program("docs/course/17-encoders/patches.py", NoOptions, "CHECKPOINT")
def main(_: NoOptions, name: str = "out/vit-digits") -> None:
    """Print both tables."""
    trained = VIT.read(Path(name))
    model, plain = trained.make_model().eval(), trained.make_model().eval()
    data, kept = load_pictures(trained.dataset), watched(model)
    inputs = data.scaled(data.test.pixels)[:500]
    changed, distances = {}, []
    places = np.stack(np.divmod(np.arange(model.config.rows**2), model.config.rows), axis=1)
    apart = np.linalg.norm(places[:, None] - places, axis=-1)
    for number, picture in enumerate(inputs[:, None]):
        label = int(plain(Tensor(picture)).numpy().argmax())
        attention = look_inside(plain, Tensor(picture)).attention
        orders = {
            "relevance": relevance(model, kept, picture, label),
            "rollout": patches_of(model, rollout(attention)),
            "at random": keyed_rng(1, "patches", number).random(len(places)),
        }
        for name, values in orders.items():
            blacked = [without(model, picture, np.argsort(-values)[:count]) for count in REMOVED]
            guesses = plain(Tensor(np.concatenate(blacked))).numpy().argmax(-1)
            changed.setdefault(name, []).append(guesses != label)
        distances.append((attention[..., -len(places) :, -len(places) :] * apart).sum(-1).mean(-1))
    print(
        f"| patches blacked out, of {len(places)} | {' | '.join(map(str, REMOVED))} |\n|{'---|' * (len(REMOVED) + 1)}"
    )
    for name, answers in changed.items():
        print(f"| {name} | {' | '.join(f'{share:.0%}' for share in np.mean(answers, axis=0))} |")
    print(f"\nmean distance in patches of what is attended to, by layer and head; everywhere alike: {apart.mean():.2f}")
    print(np.mean(distances, axis=0).round(2))


if __name__ == "__main__":
    run_command(Path(sys.argv[0]).name, main)
