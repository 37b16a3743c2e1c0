"""`sample.py` with a GPT: continue a prompt, answer, take turns, talk, complete a picture, or measure a loss."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from gpt import pairs, pictures
from gpt.chat import Chat, ChatFormat, RememberingModel, replies
from gpt.interactive import Conversation, converse
from gpt.model import GPT
from gpt.score import score
from tinygrad_lite.cli.console import say, shown, wants_colour, write
from tinygrad_lite.cli.prompt import read_prompt, warn_of_unknown
from tinygrad_lite.corpora.texts import load_files
from tinygrad_lite.decoding.beam import beam_search
from tinygrad_lite.decoding.probabilities import LEGEND, Probabilities
from tinygrad_lite.decoding.sample_options import LENGTH_PENALTY, SampleOptions
from tinygrad_lite.decoding.sampling import generate
from tinygrad_lite.decoding.stopping import StopText
from tinygrad_lite.errors import OptionError
from tinygrad_lite.tokenizers.base import StreamDecoder, Tokenizer
from tinygrad_lite.training.family import Trained
from tinygrad_lite.training.pretrained import end_tokens, is_pretrained_folder


def speak(options: SampleOptions, given: Mapping[str, Any], trained: Trained, model: GPT) -> None:
    """Complete a picture, measure a loss, or continue the prompt.

    Raises: OptionError for an option that is not for this model.
    """
    if options.similar:
        raise OptionError("--similar compares sentences by an encoder's vectors: name an encoder, such as minilm")
    if trained.tokenizer.kind == "pixels":
        pictures.check_options(given)
        pictures.show_completions(options, trained, model)
    elif "image" in given:
        raise OptionError("--image is for models of pictures, such as those of vit-digits and igpt-digits")
    elif options.score:
        show_score(options, model, trained.tokenizer)
    else:
        continue_text(options, given, trained, model)


def continue_text(options: SampleOptions, given: Mapping[str, Any], trained: Trained, model: GPT) -> None:
    """Continue the prompt, or talk, as the options say."""
    tokenizer = trained.tokenizer
    if options.show_probs and not sys.stdout.isatty():
        say("note: --show_probs does nothing here: stdout is not a terminal")
    elif options.show_probs and wants_colour():
        say(LEGEND)
    prompt = tokenizer.prepare(read_prompt(options.start))
    of_others = is_pretrained_folder(trained.path)  # where <end> means something else
    end = None if of_others else pairs.end_of(tokenizer)
    ends = end_tokens(trained.path, tokenizer.vocab_size) if of_others and tokenizer.is_foreign else {end} - {None}
    if end is not None:
        warn_of_unknown(tokenizer, prompt.replace(pairs.separator_of(tokenizer), "").strip())
        prompt, ids = pairs.prepare_prompt(options, given, tokenizer, prompt, model.config.block_size)
    if options.explain:
        resolve_name("gpt.explorer.build:explain")(options, given, trained, model, prompt)
        return
    if options.chat:
        show_chat(options, given, model, tokenizer, trained.path, prompt)
        return
    if options.interactive:
        show_conversation(options, model, tokenizer, prompt if "start" in given else "", ends)
        return
    if end is None:
        if "start" in given:  # the default prompt, a line break, needs no warning
            warn_of_unknown(tokenizer, prompt)
        ids = encode(tokenizer, prompt)
    if options.attention:
        found = resolve_name("gpt.inside:self_attention")(model, tokenizer, ids[-model.config.block_size :])
        resolve_name("tinygrad_lite.viz.attention:plot_attention")(found, "self-attention", Path(options.attention))
    show = show_beam if options.beam else show_samples
    show(options, model, tokenizer, prompt, ids, ends)


def show_samples(
    options: SampleOptions, model: GPT, tokenizer: Tokenizer, prompt: str, ids: list[int], ends: Collection[int] = ()
) -> None:
    """Write each continuation while it is generated."""
    for number in range(options.num_samples):
        if options.num_samples > 1:
            say(f"--- sample {number + 1} of {options.num_samples}")
        write(prompt)
        for _ in write_continuation(options, model, tokenizer, ids, number, ends):
            pass


def write_continuation(
    options: SampleOptions,
    model: GPT | RememberingModel,
    tokenizer: Tokenizer,
    ids: list[int],
    number: int,
    ends: Collection[int] = (),
) -> Iterator[str]:
    """Write one continuation while it is generated, and yield each piece of it, without colours.

    It stops before the first token of `ends`.
    """
    log_probs, state = model.start(np.array([ids]), options.use_cache)
    step, paint, probabilities = model.step, shown, None
    if options.show_probs and sys.stdout.isatty():
        probabilities = Probabilities(tokenizer, log_probs, wants_colour())
        step, paint = probabilities.watch(model.step), probabilities.paint
    stream, stop = StreamDecoder(tokenizer), StopText(options.stop_strings(tokenizer.prepare))
    tokens = generate(
        step,
        log_probs,
        state,
        **options.sampling(),
        prompt=np.array([ids[-model.config.block_size :]]),  # the part of it that the model reads
        first_row=number,  # each continuation has its own random numbers
        forbidden=[token for token in tokenizer.textless if token not in ends],
    )
    for row in tokens:
        if int(row[0]) in ends:
            break
        text = stream.push(int(row[0]))
        if probabilities:
            probabilities.note(int(row[0]), text)
        text = stop.push(text)
        write(text, paint)
        yield text
        if stop.found:
            break
    rest = stop.push(stream.finish()) + stop.finish()
    write(rest, paint)
    write("\n")
    yield rest
    if probabilities:
        say(probabilities.table())


def show_beam(
    options: SampleOptions, model: GPT, tokenizer: Tokenizer, prompt: str, ids: list[int], ends: Collection[int] = ()
) -> None:
    """Write the best continuations found by beam search, with their scores."""
    length_penalty = LENGTH_PENALTY if options.length_penalty is None else options.length_penalty
    (hypotheses,) = beam_search(
        model.step,
        *model.start(np.array([ids]), options.use_cache),
        beam=options.beam,
        max_new_tokens=options.max_new_tokens,
        length_penalty=length_penalty,
        n_best=options.n_best,
        stop_token=[*ends],
        forbidden=[token for token in tokenizer.textless if token not in ends],
    )
    for rank, found in enumerate(hypotheses, start=1):
        say(f"--- {rank}: {found.describe(length_penalty)}")
        write(prompt + tokenizer.decode(token for token in found.tokens if token not in ends) + "\n")


def show_conversation(
    options: SampleOptions, model: GPT, tokenizer: Tokenizer, start: str, ends: Collection[int]
) -> None:
    """Continue the lines that the user types, in turns."""

    def reply(settings: SampleOptions, text: str, turn: int) -> Iterator[str]:
        return write_continuation(settings, model, tokenizer, encode(tokenizer, text), turn, ends)

    if start:
        warn_of_unknown(tokenizer, start)
        write(start.removesuffix("\n") + "\n")
    converse(Conversation(options, start, reply, check=partial(warn_of_unknown, tokenizer)), tokenizer.prepare)


def show_chat(
    options: SampleOptions, given: Mapping[str, Any], model: GPT, tokenizer: Tokenizer, folder: Path, question: str
) -> None:
    """Answer one question, or talk with a user who types messages."""
    chat = Chat(options, [], replies(ChatFormat.from_folder(folder, tokenizer), model, write_continuation))
    if "start" in given:
        chat.take(" " + question)  # with a blank, so that a / is text
    else:
        converse(chat, tokenizer.prepare, "type a message; an empty one or /quit ends, /help explains more")


def show_score(options: SampleOptions, model: GPT, tokenizer: Tokenizer) -> None:
    """Print the model's loss on a text, and a warning of unknown characters."""
    corpus = load_files([options.score], as_is=tokenizer.is_foreign)
    warn_of_unknown(tokenizer, corpus.text)
    found = score(model, tokenizer, corpus)
    write(f"{found.bits_per_character:.4f} bits per character, {found.nats_per_token:.4f} nats per token\n")
    say(f"{found.characters:,} characters, {found.tokens:,} tokens, in windows of {model.config.block_size}")


def encode(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The prompt's tokens: at least one, because the model needs one to start from."""
    return tokenizer.encode_whole(prompt) or tokenizer.encode("\n") or [0]
