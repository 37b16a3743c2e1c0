"""Generate text or translate with a trained model: checkpoint -> tokenizer -> decoder -> text.

    python sample.py --start "Habe nun, ach!"          continue a prompt, with the newest run under out/
    python sample.py out/goethe/best.safetensors       with this checkpoint
    python sample.py out/reverse --start abcdefghij    translate, with a translation model; --beam 5 --n_best 3
    python sample.py gpt2/                             with pretrained weights in Hugging Face's layout
    python sample.py gpt2/ --adapter out/my-adapter    and with what a run with --lora_rank learned on top of them
    python sample.py --start FILE:prompt.txt           read the prompt from a file; --start - reads stdin
    python sample.py --greedy                          always the most probable token
    python sample.py --beam 4 --n_best 3               search for the most probable continuations
    python sample.py --stop . !                        stop before the first of these strings
    python sample.py --interactive                     write in turns with the model; commands change settings
    python sample.py smollm2 --chat                    talk with a small model that is downloaded first
    python sample.py --score my.txt                    the loss on a text in bits per character; nothing is generated
    python sample.py --quantize nf4                    with weights of 4 bits: less memory, a little more loss
    python sample.py --start "Ja." --attention a.svg   plot what each token, read or written, attends to
    python sample.py --explain page.html               write a page for exploring the model
    python sample.py --help                            the most used options; --help all: every one

The prompt and the generated text go to stdout (with --score, the loss), everything else to stderr.
"""

import sys
from importlib.util import find_spec

if not find_spec("training"):
    sys.exit("sample.py: tinygrad_lite is not installed: run pip install -e . in the root of the project")

from training.cli import doorstep

if __name__ == "__main__":
    doorstep.enter("sample.py")

import os
from pathlib import Path

import numpy as np

from families import FAMILIES
from text.decoding.sample_options import check_beam
from tinygrad_lite.errors import CheckpointError, OptionError
from tinygrad_lite.precision import set_precision
from training.cli.command_line import parse_command_line
from training.cli.console import quoted, run_command, say, with_value
from training.cli.options import build
from training.estimate import is_shortage, too_little_to_sample
from training.family import Family, family_of_weights
from training.folder import choose_device, find_checkpoint, tune_memory

OUT = Path("out")


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    tune_memory()
    np.seterr(all="ignore")
    kind = next(iter(FAMILIES.values())).sampling  # the options are the same for all families
    given, words = parse_command_line(
        kind,
        argv,
        prog="sample.py",
        description="Continue a prompt, or translate, with a trained model.",
        examples=kind.EXAMPLES,
        positional="checkpoint",
        about_positional=f"{kind.MODELS} (default: the newest run under {OUT}/)",
        common=kind.COMMON,
        ignored=dict.fromkeys(("compile",), "this project has no such feature"),
        hints={
            "model": "is not needed: name the file or folder alone, as in python sample.py out/goethe",
            "output": "is not needed: the text goes to stdout, so python sample.py > FILE keeps it",
        },
    )
    options = build(kind, ("command line", given))
    options.check(given)

    device = choose_device(options)
    set_precision(options.dtype)
    if words and options.out_dir:
        raise OptionError(f"both {words[0]} and --out_dir {options.out_dir} are given: name only one of them")
    family, path = find_model(Path(words[0] if words else options.out_dir or OUT))
    trained = family.read_for(options, path)
    say(trained.about)
    check_beam(options, trained.config)
    try:
        family.sample(options, given, trained, family.make_model(options, trained, device))
    except (MemoryError, RuntimeError) as error:
        if not is_shortage(error):
            raise
        raise too_little_to_sample(trained, device, options.beam, error) from None
    return 0


def find_model(path: Path) -> tuple[Family, Path]:
    """The family of a trained model, and the file or folder of the model, or the name by which it is fetched.

    Args:
        path: the same, or a folder, which means the best checkpoint of the newest run in it.
    """
    families = [*FAMILIES.values()]
    if family := family_of_weights(path, families):
        return family, path
    named = len(path.parts) == 1 and path.suffix != ".safetensors" and path != OUT
    if named and not os.path.exists(path):
        meant = quoted(OUT / path) if os.path.exists(OUT / path) else with_value("start", str(path))
        raise CheckpointError(f"there is no checkpoint {path}; did you mean: python sample.py {meant}")
    path = find_checkpoint(path)
    return family_of_weights(path, families) or families[0], path


if __name__ == "__main__":
    run_command("sample.py", main)
