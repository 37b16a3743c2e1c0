"""Let a trained model write: checkpoint -> tokenizer -> decoder -> text.

    python sample.py --start "Habe nun, ach!"          go on from a prompt, with the newest checkpoint under out/
    python sample.py out/goethe-char/best.safetensors  with this one
    python sample.py --start FILE:prompt.txt           the prompt from a file; --start - reads it from stdin
    python sample.py --greedy                          always the most probable token
    python sample.py --beam 4 --n_best 3               search for the most probable continuations
    python sample.py --help                            all options

The prompt and the text go to stdout, everything else to stderr.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpt.model import GPT
from tinygrad_lite.checkpoint import Checkpoint, describe, load_checkpoint
from tinygrad_lite.device import get_device, why_no_cuda
from tinygrad_lite.errors import CheckpointError, DecodingError, OptionError, UserError
from tinygrad_lite.options import build, option, parse_command_line
from tinygrad_lite.run import newest_checkpoint, say, tune_memory
from tinygrad_lite.text.beam import beam_search
from tinygrad_lite.text.cleaning import normalise
from tinygrad_lite.text.decoding import generate
from tinygrad_lite.text.tokenizer import StreamDecoder, Tokenizer

OUT = Path("out")


@dataclass
class SampleOptions:
    """Everything that `sample.py` can be asked for."""

    start: str = option("\n", "the prompt; FILE:path reads it from a file, - from stdin", group="text")
    max_new_tokens: int = option(500, "length of the continuation", unit="tokens", low=0, group="text")
    num_samples: int = option(1, "continuations to write, one after the other", low=1, group="text")
    seed: int = option(1337, "start of the random numbers; the same seed writes the same text", low=0, group="text")

    temperature: float = option(
        0.8, "below 1 the probable becomes more probable, above 1 less; 0: greedy", low=0.0, group="sampling"
    )
    top_k: int = option(
        200, "draw from so many most probable tokens only; 0: all", unit="tokens", low=0, group="sampling"
    )
    top_p: float = option(
        1.0, "draw from the smallest set of tokens with this probability", above=0.0, high=1.0, group="sampling"
    )
    greedy: bool = option(False, "always take the most probable token", group="sampling")

    beam: int = option(0, "width of a beam search instead of sampling; 0: none", unit="hypotheses", low=0, group="beam")
    length_penalty: float = option(
        0.6, "exponent that makes longer hypotheses cheaper; 0: none", low=0.0, high=10.0, group="beam"
    )
    n_best: int = option(1, "hypotheses to show, at most the beam's width", unit="hypotheses", low=1, group="beam")

    out_dir: str = option("", "folder of the run to take; empty: the newest checkpoint under out/", group="run")
    device: str = option("cpu", "where to compute", choices=("cpu", "cuda", "auto"), group="run")
    use_cache: bool = option(
        True, "keep keys and values of earlier tokens; without, the same text, slower", group="run"
    )


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    tune_memory()
    np.seterr(all="ignore")
    # Whatever a model writes can be printed, on every terminal and into every pipe.
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    parsed = parse_command_line(
        SampleOptions,
        argv,
        prog="sample.py",
        description="Let a trained model continue a prompt.",
        positional="checkpoint",
        ignored=dict.fromkeys(("compile", "dtype"), "this project has no such thing"),
    )
    for note in parsed.notes:
        say(f"note: {note}")
    options = build(SampleOptions, ("command line", parsed.values))
    check_combination(options, parsed.values)

    path = find_checkpoint(parsed.positional, options)
    checkpoint = load_checkpoint(path)
    say(f"{path}: {describe(checkpoint)}")
    device = get_device(options.device).name
    if options.device == "auto":
        say(f"--device auto takes {device}" + (f" ({why_no_cuda()})" if device == "cpu" else ""))
    tokenizer, model = load(checkpoint, device)
    prompt = normalise(read_prompt(options.start))  # as the text was that the model learned from
    ids = encode(tokenizer, prompt)
    if options.beam:
        show_beam(options, model, tokenizer, prompt, ids)
    else:
        show_samples(options, model, tokenizer, prompt, ids)
    return 0


def check_combination(options: SampleOptions, given: dict) -> None:
    """Refuse options that contradict each other."""
    drawing = [f"--{name}" for name in ("temperature", "top_k", "top_p", "greedy", "num_samples") if name in given]
    if options.beam and drawing:
        raise OptionError(f"--beam searches for the most probable text, {drawing[0]} is for drawing one: choose")
    searching = [f"--{name}" for name in ("length_penalty", "n_best") if name in given]
    if not options.beam and searching:
        raise OptionError(f"{searching[0]} is for beam search: give --beam too, for example --beam 4")
    if options.beam and options.n_best > options.beam:
        raise OptionError(f"--n_best {options.n_best}: a beam of {options.beam} keeps no more than {options.beam}")


def find_checkpoint(named: str | None, options: SampleOptions) -> Path:
    """The checkpoint named on the command line (a file, or a run's folder), or the newest one."""
    if named and options.out_dir:
        raise OptionError(f"both {named} and --out_dir {options.out_dir} are given: which checkpoint?")
    place = Path(named or options.out_dir or OUT)
    if place.is_dir() or not (named or options.out_dir):
        return newest_checkpoint(place)
    return place


def load(checkpoint: Checkpoint, device: str) -> tuple[Tokenizer, GPT]:
    """The tokenizer and the model that a checkpoint holds."""
    tokenizer = Tokenizer.from_json(checkpoint.tokenizer)
    model = GPT.from_checkpoint(checkpoint, device)
    model.eval()
    if tokenizer.vocab_size != model.config.vocab_size:
        raise CheckpointError(
            f"the checkpoint's tokenizer has {tokenizer.vocab_size} tokens, its model {model.config.vocab_size}"
        )
    return tokenizer, model


def read_prompt(start: str) -> str:
    """The prompt itself, from the argument, a file, or stdin."""
    try:
        if start == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        if start.startswith("FILE:"):
            return Path(start.removeprefix("FILE:")).read_bytes().decode("utf-8")
    except OSError as error:
        raise OptionError(f"--start {start} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        where = "stdin" if start == "-" else start
        raise OptionError(f"--start: {where} is not UTF-8 text (byte {error.start})") from None
    return start


def encode(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The prompt's tokens, at least one; a warning names characters that the model never saw."""
    if unknown := tokenizer.unknown(prompt):
        shown = " ".join(repr(character) for character in sorted(unknown)[:20]) + (" ..." if len(unknown) > 20 else "")
        say(f"warning: the model never saw {shown}; it reads them as unknown")
    return tokenizer.encode(prompt) or tokenizer.encode("\n") or [0]


def show_samples(options: SampleOptions, model: GPT, tokenizer: Tokenizer, prompt: str, ids: list[int]) -> None:
    """Write the continuations, each as it is generated."""
    for number in range(options.num_samples):
        if options.num_samples > 1:
            say(f"--- sample {number + 1} of {options.num_samples}")
        write(prompt)
        log_probs, state = model.start(np.array([ids]), options.use_cache)
        stream = StreamDecoder(tokenizer)
        tokens = generate(
            model.step,
            log_probs,
            state,
            max_new_tokens=options.max_new_tokens,
            temperature=0.0 if options.greedy else options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            seed=options.seed,
            first_row=number,  # each sample has its own random numbers
            forbidden=tuple(tokenizer.specials.values()),
        )
        for row in tokens:
            write(stream.push(int(row[0])))
        write(stream.finish() + "\n")


def show_beam(options: SampleOptions, model: GPT, tokenizer: Tokenizer, prompt: str, ids: list[int]) -> None:
    """Write the best continuations that a beam search finds, with their numbers."""
    log_probs, state = model.start(np.array([ids]), options.use_cache)
    (hypotheses,) = beam_search(
        model.step,
        log_probs,
        state,
        beam=options.beam,
        max_new_tokens=options.max_new_tokens,
        length_penalty=options.length_penalty,
        n_best=options.n_best,
        forbidden=tuple(tokenizer.specials.values()),
    )
    for rank, found in enumerate(hypotheses, start=1):
        say(
            f"--- {rank}: log-prob {found.log_prob:.4f} nats, length {found.length} tokens, score {found.score:.4f} "
            f"(log-prob / ((5 + length) / 6)^{options.length_penalty:g})"
        )
        write(prompt + tokenizer.decode(found.tokens) + "\n")


def write(text: str) -> None:
    """Print text at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def run() -> None:
    """Call `main` and turn the errors that a user can mend into one sentence."""
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        say(f"sample.py: {error}")
        sys.exit(2 if isinstance(error, (OptionError, DecodingError)) else 1)
    except KeyboardInterrupt:
        say("")
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:  # the disk is full, a file was taken away
        say(f"sample.py: {error}")
        sys.exit(1)


if __name__ == "__main__":
    run()
