"""`sample.py` with a GPT in all its ways: answer, take turns, talk, complete an image, explain, or as the core does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from extra.chat.chat import show_chat
from extra.chat.interactive import show_conversation
from extra.explorer.gpt import explain
from extra.gpt.speculative import with_draft
from extra.inside.gpt import self_attention
from extra.pairs.answering import ends_of, is_answering, prepare_prompt, prompt_of, separator_of
from extra.pixels.pictures import show_completions
from extra.plots.attention import plot_attention
from extra.plots.figure import check_plot
from extra.rewards.calculator import with_calculator
from gpt.model import GPT
from gpt.sample import explain_colours, show_beam, show_samples
from gpt.score import show_score
from tinygrad_lite.errors import OptionError, counted
from training.cli.console import say
from training.cli.prompt import read_prompt, warn_of_cut, warn_of_unknown
from training.family import Trained


def sample(options: Any, given: Mapping[str, Any], trained: Trained, model: GPT) -> None:
    """Complete an image, measure a loss, or continue the prompt.

    Raises: OptionError for an option that is not for this model.
    """
    if options.similar:
        raise OptionError("--similar compares sentences by an encoder's vectors: name an encoder, such as minilm")
    if of_any := [name for name in ("steps", "order") if name in given]:
        raise OptionError(f"--{of_any[0]} is for models that write in any order, such as that of diffusion: omit it")
    if trained.documents and (for_texts := [name for name in ("score", "interactive") if name in given]):
        raise OptionError(f"--{for_texts[0]} is for models that learned one text; this one learned documents: omit it")
    if trained.tokenizer.kind == "pixels":
        show_completions(options, given, trained, model)
    elif of_images := [name for name in ("image", "keep_rows", "out") if name in given]:
        raise OptionError(f"--{of_images[0]} is for models of pictures, such as those of vit-digits and igpt-digits")
    elif options.score:
        show_score(options, model, trained.tokenizer)
    else:
        continue_text(options, given, trained, model)


def continue_text(options: Any, given: Mapping[str, Any], trained: Trained, model: GPT) -> None:
    """Continue the prompt, answer it, explain what the model does with it, or talk, as the options say."""
    tokenizer, ends, answers = trained.tokenizer, ends_of(trained), is_answering(trained)
    explain_colours(options)
    # The default prompt is a line break, which begins no document.
    prompt = tokenizer.prepare(read_prompt("" if trained.documents and "start" not in given else options.start))
    if options.chat:
        show_chat(options, given, trained, model, prompt)
        return
    if answers:
        warn_of_unknown(tokenizer, prompt.replace(separator_of(tokenizer), "").strip())
        options, prompt, ids = prepare_prompt(options, given, tokenizer, prompt, model.config.block_size)
    if options.explain:
        explain(options, given, trained, model, prompt)
    elif options.interactive:
        show_conversation(options, given, trained, model, prompt)
    else:
        if not answers:
            if "start" in given:  # the default prompt, a line break, needs no warning
                warn_of_unknown(tokenizer, prompt)
            ids = prompt_of(trained, prompt)
        if not model.is_endless:
            warn_of_cut([len(ids)], model.config.block_size, "last", "prompt")
        if options.attention:
            check_plot(options.attention, "--attention")
        show = show_beam if options.beam else show_samples
        if options.draft:
            writer = with_draft(options, trained, model, ends)
        else:
            writer = with_calculator(model, tokenizer, trained.dataset)
        whole = show(options, writer, tokenizer, prompt, ids, ends)
        if options.draft:
            say(writer.summary())
        if options.attention:
            last = whole[-model.config.block_size :]  # what the model reads at once
            what = "self-attention" if last == whole else f"self-attention in the last {counted(len(last), 'token')}"
            plot_attention(self_attention(model, tokenizer, last), what, Path(options.attention))
