"""Fold an adapter into the weights of its base, and write the result as an ordinary checkpoint.

    python -m extra.adapters.merge out/goethe/best.safetensors out/goethe-finetuned goethe-plus.safetensors

BASE is a checkpoint, a folder in Hugging Face's layout, or smollm2; ADAPTER a run with `--lora_rank` or `--freeze`, or
a folder in peft's layout. In every linear map with an adapter, the matrix W becomes W + alpha / r B A
(`tinygrad_lite/adapt.py`), which computes the same. The checkpoint no longer needs the base: sample.py generates text
with it, train.py --init_from starts from it, `extra.pretrained.export` exports it.
"""

from pathlib import Path

from extra.families import GPT as FAMILY
from tinygrad_lite.errors import OptionError
from training.checkpoint import Checkpoint, save_checkpoint
from training.cli.console import quoted, run_command, say

USAGE = "usage: python -m extra.adapters.merge BASE ADAPTER OUT.safetensors"


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    if len(argv) != 3 or any(word.startswith("-") for word in argv):
        raise OptionError(f"three arguments are needed, a base, an adapter and a new file; {USAGE}")
    base, adapter, out = map(Path, argv)
    if out.suffix != ".safetensors" or out.exists() or not out.parent.is_dir():
        raise OptionError(f"{out} must be a new file whose name ends in .safetensors, in an existing folder; {USAGE}")
    trained = FAMILY.read(base, adapter)
    trained.make_model()  # this checks that weights and settings agree
    training = {"dataset": trained.dataset} if trained.dataset else {}
    parts = FAMILY.name, trained.config.to_json(), training, trained.tokenizer.to_json()
    new_run = {"step": 0, "best_loss": None, "best_step": None, "optimizer": {}}
    data = {"corpus_sha256": trained.corpus_sha256, "weights": trained.weights}
    save_checkpoint(out, Checkpoint(*parts, **new_run, **data))
    say(f"{trained.about}; merged into {out}: python sample.py {quoted(out)}")
    return 0


if __name__ == "__main__":
    run_command("extra.adapters.merge", main, __doc__)
