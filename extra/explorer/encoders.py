"""The page of an encoder: one recorded run through what it computed for a text or a picture.

    python sample.py out/bert-goethe --start "Der [MASK] ist ein Künstler." --explain page.html
    python sample.py out/vit-digits --image test:17 --explain page.html

All numbers are computed here, while the page is written; the `explorer*.js` next to this file show them.
"""

from typing import Any

import numpy as np

from extra.encoders.bert import Bert
from extra.encoders.labels import sequence, texts_of
from extra.encoders.looking import as_input, asked_picture, gray, rollout
from extra.encoders.vit import ViT
from extra.encoders.words import MASK, predictions, whole_sequence
from extra.explorer.page import assemble, blocks_formula, described, halves, panels_of
from extra.inside import Inside, look_inside, numbers, pieces
from extra.plots.figure import write_or_refuse
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import OptionError
from tinygrad_lite.nn import Module
from tinygrad_lite.tensor import Tensor
from training.cli.console import say
from training.cli.prompt import prompt_lines
from training.family import Trained

SCRIPTS = ("encoder_text", "encoder_picture", "encoder")
MAX_TOKENS = 128  # of a text; more would be unreadable
MAX_NUMBERS = 20_000_000  # attention weights in a page: 40 MB as float16, 53 MB in base64
MOST = 10  # words or classes listed
BATCH = 32  # texts read at once
TITLES = {"bert": "BERT", "vit": "Vision Transformer"}

PANELS = panels_of("encoder")


def explain_text(options: Any, trained: Trained, model: Bert, text: str) -> None:
    """Write the page of a text to the file that --explain names.

    Raises: OptionError if the text is not one line of a length that can be shown, or if the file cannot be written.
    """
    lines = prompt_lines(text)
    if len(lines) != 1 or not lines[0].strip():
        raise OptionError(f"--explain needs exactly one line of text; lines given: {len(lines)}")
    tokenizer, size = trained.tokenizer, min(model.config.block_size, MAX_TOKENS)
    asks_label = model.config.objective == "labels"
    ids = whole_sequence(tokenizer, lines[0])
    segments = np.zeros_like(ids)
    if asks_label:
        ids, segments = sequence(tokenizer, texts_of(lines[0], model.config.segments), len(text) + size)
    if len(ids) > size:
        raise OptionError(f"--explain: the page shows at most {size} tokens of this model, and the text has {len(ids)}")
    found = look_inside(model, *inputs(model, ids[None], segments))
    data = recording(found) | {"tokens": pieces(tokenizer, ids.tolist()), "start": 0}
    data |= {"ids": ids.tolist(), "segments": segments.tolist()}
    shown = ["tokens", "attention"]
    if asks_label:
        labels = data["labels"] = occlusion(model, ids, segments)
        changes = [abs(labels["probabilities"][0] - row[0]) if row else 0 for row in labels["hidden"]]
        data["start"] = int(np.argmax(changes))
        shown.insert(1, "labels")
    elif (places := np.flatnonzero(ids == model.config.mask)).size and model.config.objective == "words":
        words = predictions(model, tokenizer, lines[0], MOST)
        data["masks"] = [
            {"position": int(place), "words": [[pieces(tokenizer, [token])[0], p] for token, p in best]}
            for place, best in zip(places, words, strict=True)
        ]
        data["start"] = int(places[0])
        shown.insert(1, "words")
    else:
        say(f"note: the page shows no hidden words: there is no {MASK} in the text, or the model outputs only features")
    intro = f"This is your model: {about(trained)}. It read one text while this page was written."
    blobs = {"recorded-attention": halves(found.attention)}
    write(options, "Inside your encoder", intro, shown, data, blobs, norm_first=model.config.norm_first)


def inputs(model: Bert, ids: np.ndarray, segments: np.ndarray) -> list[Tensor]:
    """The tokens (B, T) of texts, and their segments (T,), as the model expects them."""
    return [Tensor(x, dtype=np.int64, device=model.device) for x in (ids, np.broadcast_to(segments, ids.shape))]


def occlusion(model: Bert, ids: np.ndarray, segments: np.ndarray) -> dict[str, Any]:
    """The most probable labels, best first, and their probabilities with each token alone replaced by [MASK].

    [CLS] and [SEP] are never hidden: they have None.

    Args:
        ids, segments: (T,), of one text.
    Reference: Zeiler, Fergus 2014 (arXiv:1311.2901), section 4.2, on pictures.
    """
    places = np.flatnonzero((ids != model.config.cls) & (ids != model.config.sep))
    texts = np.repeat(ids[None], 1 + len(places), axis=0)
    texts[1 + np.arange(len(places)), places] = model.config.mask
    found = []
    with no_grad(), model.evaluating():
        for first in range(0, len(texts), BATCH):
            logits = model.label_logits(*inputs(model, texts[first : first + BATCH], segments))
            found.append(numbers(logits.softmax()))
    whole, *hidden = np.concatenate(found)
    order = np.argsort(-whole, kind="stable")[:MOST]
    shown = {place: row[order].tolist() for place, row in zip(places, hidden, strict=True)}
    return {
        "names": [model.config.label_names[number] for number in order],
        "probabilities": whole[order].tolist(),
        "hidden": [shown.get(place) for place in range(len(ids))],
    }


def explain_picture(options: Any, trained: Trained, model: Module) -> None:
    """Write the page of a picture to the file that --explain names.

    Raises: OptionError if the model has no attention, or too much of it, or if the file cannot be written.
    """
    if not isinstance(model, ViT):
        raise OptionError("--explain shows attention, which a convolutional network lacks: take a Vision Transformer")
    config = model.config
    count = config.n_layer * config.n_head * config.block_size**2
    if count > MAX_NUMBERS:
        raise OptionError(f"--explain: this model has {count:,} attention weights; a page holds {MAX_NUMBERS:,}")
    picture, name = asked_picture(options, trained)
    pictures = as_input(model, picture)
    found = look_inside(model, pictures)
    with no_grad():
        probabilities = numbers(model(pictures).softmax())[0]
    names = [trained.tokenizer.decode([number]) for number in range(len(probabilities))]
    right = name.rpartition(": ")[2] if options.image.startswith("test:") else None
    order = np.argsort(-probabilities, kind="stable")
    data = recording(found) | {
        "about": name,
        "right": right,
        "size": config.image_size,
        "rows": config.rows,
        "start": 0 if config.pooling == "cls" else None,  # None: the mean of all patches
        "classes": [[names[n], float(probabilities[n])] for i, n in enumerate(order) if i < MOST or names[n] == right],
    }
    blobs = {"recorded-picture": gray(picture).astype(np.uint8).tobytes()}
    blobs |= {"recorded-rollout": halves(rollout(found.attention)), "recorded-attention": halves(found.attention)}
    intro = f"This is your model: {about(trained)}. It looked at one picture while this page was written."
    write(options, "Inside your Vision Transformer", intro, ["picture", "looks", "rollout"], data, blobs)


def recording(found: Inside) -> dict[str, Any]:
    """The sizes of the attention, (L, H, T), and the lengths of all vectors: (L + 1, T) and (L, 2, T)."""
    return {
        "shape": found.attention.shape[:3],
        "stream": np.linalg.norm(found.stream, axis=-1).tolist(),
        "added": np.linalg.norm(found.added, axis=-1).tolist(),
    }


def about(trained: Trained) -> str:
    """Which model this is, without its path."""
    family, _, more = described(trained).partition(" ")
    return f"a {TITLES.get(family.lower(), family)} {more}"


def write(options: Any, title: str, intro: str, shown: list, data: dict, blobs: dict, norm_first: bool = True) -> None:
    """Write a page of these panels, and of the stream, with the formula of the model's blocks."""
    stream = PANELS["stream"] | {"formula": f"{blocks_formula(norm_first)};   length |x| = sqrt(x_1^2 + x_2^2 + ...)"}
    panels = {name: PANELS[name] for name in shown} | {"stream": stream}
    data["panels"] = [*panels]
    write_or_refuse(options.explain, assemble(title, [intro], panels, data, blobs, SCRIPTS), "--explain ")
    say(f"wrote {options.explain}; open it in a browser")
