"""`sample.py` with a GPT: continue a prompt, answer, take turns, talk, complete a picture, or measure a loss."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from extra.pairs.answering import END, is_answering, prepare_prompt, separator_of
from extra.plots.figure import check_plot
from extra.pretrained.read import end_tokens, is_pretrained_folder
from extra.rewards.calculator import with_calculator
from gpt.model import GPT
from gpt.score import show_score
from text.decoding.beam import beam_search
from text.decoding.probabilities import Probabilities, legend
from text.decoding.sample_options import LENGTH_PENALTY, SampleOptions
from text.decoding.sampling import generate
from text.decoding.stopping import StopText
from text.tokenizers.base import StreamDecoder, Tokenizer
from tinygrad_lite.errors import OptionError, counted
from training.cli.console import say, shown, wants_colour, write
from training.cli.prompt import read_prompt, warn_of_cut, warn_of_unknown
from training.family import Trained


def speak(options: SampleOptions, given: Mapping[str, Any], trained: Trained, model: GPT) -> None:
    """Complete a picture, measure a loss, or continue the prompt.

    Raises: OptionError for an option that is not for this model.
    """
    if options.similar:
        raise OptionError("--similar compares sentences by an encoder's vectors: name an encoder, such as minilm")
    if trained.tokenizer.kind == "pixels":
        from extra.pixels.pictures import show_completions

        show_completions(options, given, trained, model)
    elif "image" in given:
        raise OptionError("--image is for models of pictures, such as those of vit-digits and igpt-digits")
    elif options.score:
        show_score(options, model, trained.tokenizer)
    else:
        continue_text(options, given, trained, model)


def continue_text(options: SampleOptions, given: Mapping[str, Any], trained: Trained, model: GPT) -> None:
    """Continue the prompt, answer it, explain what the model does with it, or talk, as the options say."""
    tokenizer, ends = trained.tokenizer, ends_of(trained)
    if options.show_probs and not sys.stdout.isatty():
        say("note: --show_probs does nothing here: stdout is not a terminal")
    elif options.show_probs and wants_colour():
        print(legend(colour=sys.stderr.isatty()), file=sys.stderr)
    prompt = tokenizer.prepare(read_prompt(options.start))
    answers = is_answering(trained)
    if options.chat:
        from extra.chat.chat import show_chat

        show_chat(options, given, trained, model, prompt)
        return
    if answers:
        warn_of_unknown(tokenizer, prompt.replace(separator_of(tokenizer), "").strip())
        options, prompt, ids = prepare_prompt(options, given, tokenizer, prompt, model.config.block_size)
    if options.explain:
        from extra.explorer.gpt import explain

        explain(options, given, trained, model, prompt)
    elif options.interactive:
        from extra.chat.interactive import show_conversation

        show_conversation(options, given, trained, model, prompt)
    else:
        if not answers:
            if "start" in given:  # the default prompt, a line break, needs no warning
                warn_of_unknown(tokenizer, prompt)
            ids = encode(tokenizer, prompt)
        if not model.is_endless:
            warn_of_cut([len(ids)], model.config.block_size, "last", "prompt")
        if options.attention:
            check_plot(options.attention, "--attention")
        show = show_beam if options.beam else show_samples
        writer = with_calculator(model, tokenizer, trained.dataset)
        whole = show(options, writer, tokenizer, prompt, ids, ends)
        if options.attention:
            last = whole[-model.config.block_size :]  # what the model reads at once
            what = "self-attention" if last == whole else f"self-attention in the last {counted(len(last), 'token')}"
            from extra.inside.gpt import self_attention
            from extra.plots.attention import plot_attention

            found = self_attention(model, tokenizer, last)
            plot_attention(found, what, Path(options.attention))


def ends_of(trained: Trained) -> set[int]:
    """The tokens that end a text: those of another program's model, or <end> of a model that answers."""
    tokenizer = trained.tokenizer
    if is_answering(trained):
        return {tokenizer.specials[END]}
    by_others = tokenizer.is_foreign and is_pretrained_folder(trained.path)
    return end_tokens(trained.path, tokenizer.vocab_size) if by_others else set()


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
