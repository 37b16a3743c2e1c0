"""Export a trained BERT in Hugging Face's layout, which many programs read.

    python train.py bert-goethe --norm_first false --out_dir out/post-norm
    python -m encoder.export out/post-norm goethe-bert

The folder then holds

    config.json                       the settings, under that model's names
    model.safetensors                 the weights, under its names (`encoder/bert_layout.py`)
    tinygrad_lite_tokenizer.json      our tokenizer
    tokenizer.json, vocab.txt, ...    the same for other programs, if it is WordPiece

The class of transformers to read it with, such as `BertForMaskedLM`, is printed, and stands in config.json; it computes
the same results. A BERT normalises after each part of a block and reads a label from the first token: a model with
--norm_first true or --pooling mean cannot be exported. Byte-pair encoding is no tokenizer of BERT there: encode with
ours, and pass ids.
"""

from __future__ import annotations

from pathlib import Path

from encoder import bert_layout
from encoder.task import load_trained
from tinygrad_lite.cli.console import run_command
from tinygrad_lite.training.export import export_command, write_pretrained
from tinygrad_lite.training.model_spec import Trained


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    return export_command(argv, "encoder.export", __doc__, load_trained, export)


def export(trained: Trained, folder: Path) -> str:
    """Write a trained encoder into a new or empty folder.

    Returns: the name of the architecture, such as BertForMaskedLM.
    Raises: CheckpointError if the layout lacks one of its settings, or if the folder cannot be written.
    """
    return write_pretrained(trained, bert_layout, folder)


if __name__ == "__main__":
    run_command("encoder.export", main)
