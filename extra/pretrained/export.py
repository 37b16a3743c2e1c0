"""Export a trained GPT in Hugging Face's layout of GPT-2, Llama, Qwen2 or Qwen3, which many programs read.

    python -m extra.pretrained.export out/goethe-char/best.safetensors goethe-gpt2

The folder then holds

    config.json                       the settings, under that model's names
    model.safetensors                 the weights, under its names (`gpt2.py` and `llama.py`)
    tinygrad_lite_tokenizer.json      our tokenizer
    tokenizer.json                    only if the model was fine-tuned from one that has it

transformers' `AutoModelForCausalLM.from_pretrained("goethe-gpt2")` computes the same logits from it. A model with RMS
norms is written as a Llama, as a Qwen3 if it normalises queries and keys, or as a Qwen2 if its queries, keys and values
have biases and all others are 0; any other as a GPT-2. GPT-2 has a bias in every linear map and norm; a model without
them gets zeros there. In the layouts of Llama and Qwen, norms without gains get gains of 1, and attention's scale is
multiplied into the queries. A model with a setting that the layout lacks, such as sinusoidal positions, or the squared
ReLU of the default preset (train with --activation swiglu), cannot be exported.

Our own byte-level BPE is not written as a `tokenizer.json`: the two programs would cut text into words by regular
expressions whose classes of Unicode characters differ slightly, so some text would get different tokens. Encode with
our tokenizer and pass ids, as with the other kinds.

An adapter, the checkpoint of a run with `--lora_rank`, is written in peft's layout instead (`peft.py`):

    python -m extra.pretrained.export out/goethe-char-finetuned goethe-adapter

`PeftModel.from_pretrained(base, "goethe-adapter")` of peft then reads it, where `base` is the exported base.
"""

from pathlib import Path

from extra.gpt.trained import load_trained
from extra.pretrained.peft import layout_of, peft_files
from extra.pretrained.read import is_pretrained_folder
from extra.pretrained.write import export_command, write_files, write_pretrained
from extra.tokenizers.huggingface import GPT2_SPECIAL
from gpt.family import FAMILY
from training.checkpoint import describe, fact_in, load_checkpoint
from training.cli.console import run_command
from training.family import Trained
from training.folder import find_checkpoint


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    return export_command(argv, "extra.pretrained.export", export_file)


def export_file(source: Path, folder: Path) -> str:
    """Export the model, or the adapter, in a checkpoint or a run's folder, and say which and how."""
    file = source if is_pretrained_folder(source) else find_checkpoint(source)
    if file.is_file() and fact_in(file, "base"):
        checkpoint = load_checkpoint(file)
        FAMILY.check_family(file, checkpoint)
        write_files(folder, peft_files(file, checkpoint))
        return f"{file}: {describe(checkpoint)}; exported in the layout of peft"
    trained = load_trained(source)
    return f"{trained.about}; exported in the layout of {export(trained, folder)}"


def export(trained: Trained, folder: Path) -> str:
    """Write a trained GPT into a new or empty folder.

    Returns: the name of the architecture, such as GPT2LMHeadModel.
    Raises: CheckpointError if the layout lacks one of its settings, or if the folder cannot be written.
    """
    specials = trained.tokenizer.specials
    end = specials.get("<eos>", specials.get(GPT2_SPECIAL))
    # If omitted, the ids of bos and eos would be those of the original model.
    return write_pretrained(trained, layout_of(trained.config), folder, bos_token_id=end, eos_token_id=end)


if __name__ == "__main__":
    run_command("extra.pretrained.export", main, __doc__)
