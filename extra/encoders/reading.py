"""`sample.py` with an encoder for text: hidden words, the label of a text, or the lines that are most similar to it."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from extra.encoders.bert import Bert, mean_of_text
from extra.encoders.labels import sequence, texts_of
from extra.encoders.words import MASK, PAD, guesses, whole_sequence
from extra.inside import numbers
from extra.pretrained.layout import check_values
from extra.pretrained.read import read_json
from text.decoding.sample_options import refuse_others
from text.tokenizers.base import Tokenizer
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import CheckpointError, OptionError
from tinygrad_lite.generator import pad_rows
from tinygrad_lite.tensor import Tensor
from training.cli.console import write
from training.cli.files import lines_of, text_named
from training.cli.prompt import prompt_lines, read_prompt, warn_of_cut
from training.corpora.cleaning import normalise
from training.family import Trained

KNOWN = {*"start similar explain answers out_dir device quantize adapter dtype".split()}
# The ways of pooling in the layout of sentence-transformers.
POOLING = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
BATCH = 32  # lines read at once


def sample(options: Any, given: Mapping[str, Any], trained: Trained, model: Bert) -> None:
    """Answer for each line of a text, or write the page of --explain.

    Raises: OptionError if the options are not for this encoder.
    """
    refuse_others(given, KNOWN, "is for models that write; an encoder reads, and takes")
    if "start" not in given:
        raise OptionError('give a text: --start "Der [MASK] ist ein Künstler.", or --start - for stdin')
    if not (options.similar or options.explain) and model.config.objective == "features":
        raise OptionError("these weights only give features: add --similar FILE, whose lines are compared with --start")
    tokenizer = trained.tokenizer
    text = tokenizer.prepare(read_prompt(options.start))
    lines = prompt_lines(text)
    if options.explain:
        from extra.explorer.encoders import explain_text

        explain_text(options, trained, model, text)
    elif options.similar:
        found = lines_of(text_named(options.similar))
        others = [tokenizer.prepare(line) for line in found if line.strip()]
        show_similar(model, tokenizer, lines, others, options.answers, **sentence_settings(trained.path, tokenizer))
    elif model.config.objective == "labels":
        show_labels(model, tokenizer, lines)
    else:
        show_words(model, tokenizer, lines, options.answers)


def show_words(model: Bert, tokenizer: Tokenizer, lines: Sequence[str], most: int) -> None:
    """Print each line, and the most probable words for each [MASK] in it."""
    warn_of_cut((len(whole_sequence(tokenizer, line)) for line in lines), model.config.block_size)
    for line in lines:
        if MASK not in line:
            raise OptionError(f"there is no {MASK} in {line[:60]!r}: write it where a word is to be guessed")
        write_line("\n".join(guesses(model, tokenizer, line, most)))


def show_labels(model: Bert, tokenizer: Tokenizer, lines: Sequence[str]) -> None:
    """Print the label of each line, which has a text or a pair of texts, and the probabilities of all.

    A model with a single label computes a score, such as how well the second text answers the first (a cross-encoder).
    """
    read = [texts_of(line, model.config.segments) for line in lines]
    warn_of_cut((len(sequence(tokenizer, texts, sys.maxsize)[0]) for texts in read), model.config.block_size)
    for texts in read:
        ids, segments = sequence(tokenizer, texts, model.config.block_size)
        with no_grad():
            logits = model.label_logits(*(Tensor(array[None], device=model.device) for array in (ids, segments)))
        names = model.config.label_names
        if len(names) == 1:
            score, share = numbers(logits)[0, 0], logits.sigmoid().numpy()[0, 0]
            write_line(f"{score:.4f}\tsigmoid {share:.1%}")
            continue
        probabilities = numbers(logits.softmax())[0]
        order = np.argsort(-probabilities, kind="stable")
        listed = ", ".join(f"{names[n]} {probabilities[n]:.1%}" for n in order)
        write_line(f"{names[order[0]]}\t{listed}")


def sentence_settings(folder: Path, tokenizer: Tokenizer) -> dict[str, Any]:
    """What a folder in the layout of sentence-transformers says: pooling, the length at which a text is cut, prompts.

    A text that is compared with others gets the prompt "query", those get "document", or else both the default one.

    Raises: CheckpointError if it asks for anything but cls or mean and cosines, or for lower case that was not learned.
    """
    names = ("1_Pooling/config.json", "sentence_bert_config.json", "config_sentence_transformers.json")
    files = [folder / name for name in names]
    pooling, limits, about = (read_json(file) if file.is_file() else {} for file in files)
    if limits.get("do_lower_case") and not getattr(tokenizer, "lowercase", False):
        raise CheckpointError(f"{files[1]} has do_lower_case, but the tokenizer next to it keeps capitals: unsupported")
    for module in folder.glob("[0-9]_*"):
        if module.name.partition("_")[2] not in ("Transformer", "Pooling", "Normalize"):
            raise CheckpointError(f"{module} is a part of the model that this program does not know")
    modes = [POOLING.get(name, name) for name, value in pooling.items() if name.startswith("pooling_mode_") and value]
    modes += [pooling["pooling_mode"]] if "pooling_mode" in pooling else []  # as newer versions write it
    if modes not in ([], ["cls"], ["mean"]):
        asked = " and ".join(map(str, modes))
        raise CheckpointError(f"{files[0]} has {asked}, but this program supports only cls or mean")
    check_values(about, {"similarity_fn_name": about.get("similarity_fn_name") and "cosine", "truncate_dim": None})
    named = about.get("prompts") or {}
    if not isinstance(named, dict) or not all(isinstance(text, str) for text in named.values()):
        raise CheckpointError(f"{files[2]}: prompts are not texts by their names")
    default, kinds = named.get(str(about.get("default_prompt_name")), ""), ("query", "document passage corpus")
    prompts = [next(filter(None, map(named.get, names.split())), default) for names in kinds]
    if any(prompts) and pooling.get("include_prompt") is False:
        raise CheckpointError(f"{files[0]} has include_prompt false, but this program reads a prompt like the text")
    return {"pooling": (modes or ["mean"])[0], "longest": limits.get("max_seq_length"), "prompts": prompts}


def show_similar(
    model: Bert, tokenizer: Tokenizer, lines: Sequence[str], others: Sequence[str], most: int, **settings: Any
) -> None:
    """For each line, print the most similar other lines, with the cosine of the angle between them.

    Args:
        settings: the prompts of the lines and of the others, and what `sentence_embeddings` takes.
    """
    if not others:
        raise OptionError("--similar names a file without any text")
    prompts = settings.pop("prompts", ("", ""))
    asked = [[prompt + text for text in texts] for prompt, texts in zip(prompts, (lines, others), strict=True)]
    vectors, table = (sentence_embeddings(model, tokenizer, texts, **settings) for texts in asked)
    for line, vector in zip(lines, vectors, strict=True):
        cosines = table @ vector
        write_line(line)
        for number in np.argsort(-cosines, kind="stable")[:most]:
            write_line(f"  {cosines[number]:.3f}  {others[number]}")


def sentence_embeddings(
    model: Bert, tokenizer: Tokenizer, texts: Sequence[str], pooling: str = "mean", longest: int | None = None
) -> np.ndarray:
    """A vector of length 1 for each text, so that the product of two is a cosine.

    Args:
        pooling: the "mean" of its tokens' vectors, or the first token's, "cls".
        longest: the number of tokens after which a text is cut; None: as many as the model reads.
    Reference: Reimers, Gurevych 2019 (arXiv:1908.10084), section 3.
    """
    size, pad = min(longest or model.config.block_size, model.config.block_size), tokenizer.specials[PAD]
    rows = [sequence(tokenizer, [text], sys.maxsize)[0] for text in texts]
    warn_of_cut(map(len, rows), size)
    rows = [row if len(row) <= size else [*row[: size - 1], row[-1]] for row in rows]
    order = np.argsort([len(row) for row in rows], kind="stable")  # little padding
    vectors = np.empty((len(rows), model.config.n_embd), np.float32)
    for first in range(0, len(rows), BATCH):
        part = order[first : first + BATCH]
        ids = Tensor(pad_rows([rows[number] for number in part], pad), device=model.device)
        with no_grad():
            x = model(ids)
            whole = x[:, 0] if pooling == "cls" else mean_of_text(x, ids, pad)
            vectors[part] = numbers(whole / (whole * whole).sum(axis=1, keepdim=True).sqrt())
    return vectors


def write_line(line: str) -> None:
    """Print a line immediately."""
    write(normalise(line).rstrip("\n") + "\n")
