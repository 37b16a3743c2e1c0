"""`sample.py` with a GPT: continue a prompt, or measure a loss."""

import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from gpt.model import GPT
from gpt.score import show_score
from text.decoding.beam import beam_search
from text.decoding.probabilities import Probabilities, legend
from text.decoding.sample_options import LENGTH_PENALTY, SampleOptions
from text.decoding.sampling import generate
from text.decoding.stopping import StopText
from text.tokenizers.base import StreamDecoder, Tokenizer
from training.cli.console import say, shown, wants_colour, write
from training.cli.prompt import read_prompt, warn_of_cut, warn_of_unknown
from training.family import Trained


def sample(options: SampleOptions, given: Mapping[str, Any], trained: Trained, model: GPT) -> None:
    """Measure a loss, or continue the prompt."""
    tokenizer = trained.tokenizer
    if options.score:
        show_score(options, model, tokenizer)
        return
    explain_colours(options)
    prompt = tokenizer.prepare(read_prompt(options.start))
    if "start" in given:  # the default prompt, a line break, needs no warning
        warn_of_unknown(tokenizer, prompt)
    ids = encode(tokenizer, prompt)
    warn_of_cut([len(ids)], model.config.block_size, "last", "prompt")
    (show_beam if options.beam else show_samples)(options, model, tokenizer, prompt, ids)


def explain_colours(options: SampleOptions) -> None:
    """Say what the colours of --show_probs mean, or that there are none."""
    if options.show_probs and not sys.stdout.isatty():
        say("note: --show_probs does nothing here: stdout is not a terminal")
    elif options.show_probs and wants_colour():
        print(legend(colour=sys.stderr.isatty()), file=sys.stderr)


def show_samples(
    options: SampleOptions, model: GPT, tokenizer: Tokenizer, prompt: str, ids: list[int], ends: Collection[int] = ()
) -> list[int]:
    """Write each continuation while it is generated; returns the tokens of the prompt with the first of them."""
    texts = []
    for number in range(options.num_samples):
        if options.num_samples > 1:
            say(f"--- sample {number + 1} of {options.num_samples}")
        write(prompt)
        texts.append([*ids])
        for _ in write_continuation(options, model, tokenizer, texts[-1], number, ends):
            pass
    return texts[0]


def write_continuation(
    options: SampleOptions, model: GPT, tokenizer: Tokenizer, ids: list[int], number: int, ends: Collection[int] = ()
) -> Iterator[str]:
    """Write one continuation while it is generated, and yield each piece of it, without colours.

    It stops before the first token of `ends`. Each token is appended to `ids`, those of the prompt.
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
        max_new_tokens=options.max_new_tokens,
        sampling=options.sampling(),
        prompt=np.array([ids[-model.config.block_size :]]),  # the part of it that the model reads
        first_row=number,  # each continuation has its own random numbers
        forbidden=[token for token in tokenizer.textless if token not in ends],
    )
    for (token,) in tokens:
        if token in ends:
            break
        ids.append(int(token))
        text = stream.push(token)
        if probabilities:
            probabilities.note(token, text)
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
) -> list[int]:
    """Write the best continuations found by beam search, with their scores; returns the same as `show_samples`."""
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
    texts = [[token for token in found.tokens if token not in ends] for found in hypotheses]
    for rank, (found, text) in enumerate(zip(hypotheses, texts, strict=True), start=1):
        say(f"--- {rank}: {found.describe(length_penalty)}")
        write(prompt + tokenizer.decode(text) + "\n")
    return [*ids, *texts[0]]


def encode(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The prompt's tokens: at least one, because the model needs one to start from."""
    return tokenizer.encode_whole(prompt) or tokenizer.encode("\n") or [0]
