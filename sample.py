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
from text.decoding.sample_options import SampleOptions, check_beam, check_combination
from tinygrad_lite.errors import CheckpointError, OptionError
from tinygrad_lite.nn import Module
from tinygrad_lite.precision import set_precision
from tinygrad_lite.quantize import quantize
from training.cli.command_line import parse_command_line
from training.cli.console import quoted, run_command, say, with_value
from training.cli.options import build
from training.estimate import is_shortage, too_little_to_sample
from training.family import PEFT_CONFIG, Family, Trained, family_of_weights
from training.folder import choose_device, find_checkpoint, release_memory, tune_memory

OUT = Path("out")
EXAMPLES = {
    'python sample.py --start "Habe nun"': "continue a prompt, with the newest run",
    "python sample.py out/goethe": "generate text with the model of this run",
    "python sample.py --interactive": "write in turns with the model",
    "python sample.py --explain page.html": "write a page that shows the model from inside",
    "python sample.py smollm2 --chat": "talk with a small model that is downloaded first",
}


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    tune_memory()
    np.seterr(all="ignore")
    given, words = parse_command_line(
        SampleOptions,
        argv,
        prog="sample.py",
        description="Continue a prompt, or translate, with a trained model.",
        examples=EXAMPLES,
        positional="checkpoint",
        about_positional="a checkpoint, a run's folder, a folder in Hugging Face's layout, or smollm2 (default: the "
        f"newest run under {OUT}/)",
        common="start max_new_tokens num_samples temperature top_k seed stop show_probs interactive".split(),
        ignored=dict.fromkeys(("compile",), "this project has no such feature"),
        hints={
            "model": "is not needed: name the file or folder alone, as in python sample.py out/goethe",
            "output": "is not needed: the text goes to stdout, so python sample.py > FILE keeps it",
        },
    )
    options = build(SampleOptions, ("command line", given))
    check_combination(options, given)

    device = choose_device(options)
    set_precision(options.dtype)
    if words and options.out_dir:
        raise OptionError(f"both {words[0]} and --out_dir {options.out_dir} are given: name only one of them")
    family, path = find_model(Path(words[0] if words else options.out_dir or OUT))
    trained = family.read(path, Path(options.adapter) if options.adapter else None, options.quantize is not None)
    say(trained.about)
    check_beam(options, trained.config)
    try:
        family.speak(options, given, trained, prepare(options, trained, device))
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
    if (kind := trained.quantized) not in (None, options.quantize):
        say(f"note: the adapter was trained on top of weights in {kind}; --quantize {kind} computes with exactly these")
    if device == "cpu":
        trained.weights = model.state_dict()  # the model's own arrays: no second copy stays in memory
    return model


def find_model(path: Path) -> tuple[Family, Path]:
    """The family of a trained model, and the file or folder of the model, or the name by which it is fetched.

    Args:
        path: the same, or a folder, which means the best checkpoint of the newest run in it.
    """
    if path.suffix == ".gguf":
        command = f"python -m extra.pretrained.gguf_file {quoted(path)} FOLDER"
        raise CheckpointError(f"{path} is a GGUF file: make a folder of it first, by {command}")
    families = [*FAMILIES.values()]
    named = len(path.parts) == 1 and path.suffix != ".safetensors" and path != OUT
    if named and not os.path.exists(path) and not any(family.fetches(path) for family in families):
        meant = quoted(OUT / path) if os.path.exists(OUT / path) else with_value("start", str(path))
        raise CheckpointError(f"there is no checkpoint {path}; did you mean: python sample.py {meant}")
    if (family := family_of_weights(path, families)) is None and not (path / PEFT_CONFIG).is_file():
        path = find_checkpoint(path)
        family = family_of_weights(path, families)
    return family or families[0], path


if __name__ == "__main__":
    run_command("sample.py", main)
