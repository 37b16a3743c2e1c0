"""Generate text or translate with a trained model: checkpoint -> tokenizer -> decoder -> text.

    python sample.py --start "Habe nun, ach!"          continue a prompt, with the newest checkpoint under out/
    python sample.py out/goethe/best.safetensors       with this checkpoint
    python sample.py out/reverse --start abcdefghij    translate, with a translation model; --beam 5 --n_best 3
    python sample.py gpt2/                             with pretrained weights in Hugging Face's layout
    python sample.py gpt2/ --adapter out/my-adapter    and with what a run with --lora_rank has learned on top of them
    python sample.py --start FILE:prompt.txt           read the prompt from a file; --start - reads stdin
    python sample.py --greedy                          always the most probable token
    python sample.py --beam 4 --n_best 3               search for the most probable continuations
    python sample.py --stop . !                        stop before the first of these strings
    python sample.py --interactive                     write in turns with the model; commands change settings
    python sample.py smollm2 --chat                    talk with a small model that is downloaded first
    python sample.py --score my.txt                    the loss on a text in bits per character; nothing is generated
    python sample.py --quantize nf4                    with weights of 4 bits: less memory, a little more loss
    python sample.py --start "Ja." --attention a.svg   plot what the prompt, or a translation, attends to
    python sample.py --explain page.html               write a page in which the model can be explored
    python sample.py --help                            all options

The prompt and the generated text go to stdout (with --score, the loss), everything else to stderr.
"""

import os
import reprlib
import sys
from collections.abc import Callable, Collection, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

if missing := [name for name in ("numpy", "safetensors", "tqdm", "tinygrad_lite") if not find_spec(name)]:
    sys.exit(f"sample.py: {missing[0]} is not installed: run pip install -e . in the folder of this file")

import numpy as np

import gpt.explorer.build as explorer
from encoder import explorer as encoders
from encoder import looking, reading
from encoder.bert import Bert
from encoder.cnn import CNN
from encoder.picture_task import CNN_FAMILY, VIT_FAMILY
from encoder.task import FAMILY as bert
from encoder.vit import ViT
from gpt import pairs, pictures
from gpt.chat import Chat, ChatFormat, RememberingModel, replies
from gpt.inside import self_attention
from gpt.interactive import Conversation, converse
from gpt.model import GPT
from gpt.sample_options import HINTS, LENGTH_PENALTY, SampleOptions, check_beam, check_combination
from gpt.score import score
from gpt.task import FAMILY as gpt
from seq2seq import explorer as translation
from seq2seq import speaking
from seq2seq.model import Seq2Seq
from seq2seq.task import FAMILY as seq2seq
from tinygrad_lite.cli.command_line import parse_command_line
from tinygrad_lite.cli.console import quoted, run_command, say, shown, wants_colour
from tinygrad_lite.cli.files import read_file
from tinygrad_lite.cli.options import build
from tinygrad_lite.corpora.texts import load_files
from tinygrad_lite.decoding.beam import beam_search
from tinygrad_lite.decoding.probabilities import LEGEND, Probabilities
from tinygrad_lite.decoding.sampling import generate
from tinygrad_lite.decoding.stopping import StopText
from tinygrad_lite.device import get_device, why_no_cuda
from tinygrad_lite.errors import CheckpointError, OptionError
from tinygrad_lite.nn import Module
from tinygrad_lite.precision import check_precision, set_precision
from tinygrad_lite.quantize import quantize
from tinygrad_lite.tokenizers.base import StreamDecoder, Tokenizer
from tinygrad_lite.tokenizers.pixels import PixelTokenizer
from tinygrad_lite.training.checkpoint import fact_in
from tinygrad_lite.training.estimate import is_shortage, too_little_to_sample
from tinygrad_lite.training.family import PEFT_CONFIG, Trained, family_of_weights
from tinygrad_lite.training.pretrained import end_tokens, is_pretrained_folder
from tinygrad_lite.training.run_folder import newest_checkpoint, release_memory, tune_memory
from tinygrad_lite.viz.attention import plot_attention

FAMILIES = (gpt, seq2seq, bert, VIT_FAMILY, CNN_FAMILY)
OUT = Path("out")
EXAMPLES = {
    'python sample.py --start "Habe nun"': "continue a prompt, with the newest checkpoint",
    "python sample.py out/goethe": "generate text with the model of this run",
    "python sample.py --interactive": "write in turns with the model",
    "python sample.py --explain page.html": "write a page that shows the model from inside",
    "python sample.py smollm2 --chat": "talk with a small model that is downloaded first",
}


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    tune_memory()
    np.seterr(all="ignore")
    parsed = parse_command_line(
        SampleOptions,
        argv,
        prog="sample.py",
        description="Continue a prompt, or translate, with a trained model.",
        examples=EXAMPLES,
        positional="checkpoint",
        about_positional="a checkpoint, a run's folder, a folder in Hugging Face's layout, or smollm2 (default: the "
        f"newest checkpoint under {OUT}/)",
        common=("start", "max_new_tokens", "num_samples", "temperature", "seed"),
        ignored=dict.fromkeys(("compile",), "this project has no such feature"),
        hints=HINTS,
    )
    for note in parsed.notes:
        say(f"note: {note}")
    options = build(SampleOptions, ("command line", parsed.values))
    check_combination(options, parsed.values)

    device = get_device(options.device).name
    check_precision(options.dtype, device)
    set_precision(options.dtype)
    if options.quantize and device != "cpu":
        raise OptionError(f"--quantize {options.quantize} is for the CPU: add --device cpu, or omit --quantize")
    named = parsed.positional
    if named and options.out_dir:
        raise OptionError(f"both {named} and --out_dir {options.out_dir} are given: name only one of them")
    adapter, beside = Path(options.adapter) if options.adapter else None, options.quantize is not None
    trained = load_any(Path(named or options.out_dir or OUT), adapter, beside)
    say(trained.about)
    if options.device == "auto":
        say(f"--device auto chooses {device}" + (f" ({why_no_cuda()})" if device == "cpu" else ""))
    check_beam(options, trained.config)
    try:
        use(options, parsed.values, trained, prepare(options, trained, device))
    except (MemoryError, RuntimeError) as error:
        if not is_shortage(error):
            raise
        raise too_little_to_sample(trained, device, options.beam, error) from None
    return 0


def prepare(options: SampleOptions, trained: Trained, device: str) -> Module:
    """The model on the device, with the weights that were read; in fewer bits with --quantize."""
    model = trained.make_model(device, take=device == "cpu")
    if options.quantize:
        say(quantize(model, options.quantize).describe())
        trained.attach_changes(model)
        release_memory()
    if trained.quantized not in (None, options.quantize):
        kind = trained.quantized
        say(f"note: the adapter was trained beside weights in {kind}; --quantize {kind} computes with exactly these")
    if device == "cpu":
        trained.weights = model.state_dict()  # the model's own arrays: no second copy stays in memory
    return model


def use(options: SampleOptions, given: dict, trained: Trained, model: Module) -> None:
    """Translate, read, look or write, as this model can.

    Args:
        given: the options on the command line.
    """
    tokenizer = trained.tokenizer
    if isinstance(model, Seq2Seq):
        speaking.check_options(options, given)
        text = "" if options.interactive else tokenizer.prepare(read_prompt(options.start))
        warn_of_unknown(tokenizer, text.replace("\n", ""))
        if options.explain:
            translation.explain(options, given, trained, model, text)
        else:
            speaking.speak(options, given, model, tokenizer, text)
    elif isinstance(model, Bert):
        reading.check_options(options, given, model)
        text = tokenizer.prepare(read_prompt(options.start))
        if options.explain:
            encoders.explain_text(options, trained, model, text)
        else:
            reading.read(options, model, tokenizer, text, trained.path)
    elif isinstance(model, (ViT, CNN)):
        looking.check_options(given)
        if options.explain:
            encoders.explain_picture(options, trained, model)
        else:
            looking.look(options, trained, model)
    elif options.similar:
        raise OptionError("--similar compares sentences by an encoder's vectors: name an encoder, such as minilm")
    elif isinstance(tokenizer, PixelTokenizer):
        pictures.check_options(given)
        pictures.show_completions(options, trained, model)
    elif "image" in given:
        raise OptionError("--image is for models of pictures, such as those of vit-digits and igpt-digits")
    elif options.score:
        show_score(options, model, tokenizer)
    else:
        continue_text(options, given, trained, model)


def continue_text(options: SampleOptions, given: dict, trained: Trained, model: GPT) -> None:
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
        explorer.explain(options, given, trained, model, prompt)
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
        found = self_attention(model, tokenizer, ids[-model.config.block_size :])
        plot_attention(found, "self-attention", Path(options.attention))
    show = show_beam if options.beam else show_samples
    show(options, model, tokenizer, prompt, ids, ends)


def load_any(path: Path, adapter: Path | None = None, beside: bool = False) -> Trained:
    """A trained model of any family, from a file or folder, or fetched by its name; with this adapter, if any.

    Args:
        beside: do not fold an adapter in (`Trained.attach_changes`).
    """
    is_fetched = any(family.is_fetched(path) for family in FAMILIES)
    if path.suffix == ".gguf":
        raise CheckpointError(f"{path} is a GGUF file: make a folder of it first, by convert of gpt/gguf_file.py")
    named = len(path.parts) == 1 and path.suffix != ".safetensors" and path != OUT
    if named and not is_fetched and not os.path.exists(path):
        meant = quoted(OUT / path) if os.path.exists(OUT / path) else f'--start "{path}"'
        raise CheckpointError(f"there is no checkpoint {path}; did you mean: python sample.py {meant}")
    if family := family_of_weights(path, FAMILIES):
        return family.read(path, adapter, beside)
    if (path.is_dir() or path == OUT) and not (path / PEFT_CONFIG).is_file():
        path = newest_checkpoint(path)
    family = fact_in(path, "family")
    return next((spec for spec in FAMILIES if spec.name == family), gpt).read(path, adapter, beside)


def read_prompt(start: str) -> str:
    """The text of the prompt, from the argument, a file, or stdin."""
    try:
        if start == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        if start.startswith("FILE:"):
            return read_file(start.removeprefix("FILE:")).decode("utf-8")
    except OSError as error:
        raise OptionError(f"--start {start!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        where = "stdin" if start == "-" else repr(start)
        raise OptionError(f"--start: {where} is not UTF-8 text (byte {error.start})") from None
    return start


def encode(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The prompt's tokens: at least one, because the model needs one to start from."""
    return tokenizer.encode_whole(prompt) or tokenizer.encode("\n") or [0]


def warn_of_unknown(tokenizer: Tokenizer, text: str) -> None:
    """Warn of characters, or words, that are not in the vocabulary."""
    if unknown := tokenizer.unknown(text):
        shown = " ".join(reprlib.repr(piece) for piece in sorted(unknown)[:20]) + (" ..." if len(unknown) > 20 else "")
        say(f"warning: the model never saw {shown}; it reads them as unknown")


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
        max_new_tokens=options.max_new_tokens,
        temperature=0.0 if options.greedy else options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        repetition_penalty=options.repetition_penalty,
        no_repeat_ngram_size=options.no_repeat_ngram_size,
        prompt=np.array([ids[-model.config.block_size :]]),  # the part of it that the model reads
        seed=options.seed,
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
    options: SampleOptions, given: dict, model: GPT, tokenizer: Tokenizer, folder: Path, question: str
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


def write(text: str, paint: Callable[[str], str] = shown) -> None:
    """Print text immediately."""
    sys.stdout.write(paint(text))
    sys.stdout.flush()


if __name__ == "__main__":
    run_command("sample.py", main)
