"""Export a trained BERT or Vision Transformer in Hugging Face's layout, which many programs read.

    python train.py bert-goethe --positions learned --out_dir out/post-norm
    python -m extra.encoders.export out/post-norm goethe-bert

The folder then holds

    config.json                       the settings, under that model's names; for pictures, the names of the classes
    model.safetensors                 the weights, under its names (`bert.py` and `vit.py` in extra/pretrained/)
    tinygrad_lite_tokenizer.json      our tokenizer, or the names of the classes
    tokenizer.json, vocab.txt, ...    the same for other programs, if it is WordPiece

The class of transformers to read it with, such as `BertForMaskedLM`, is printed, and named in config.json; it computes
the same results. A model with a setting that the layout lacks cannot be exported: a BERT has --positions learned,
normalises after each part of a block (--norm_first false) and reads a label from the first token (--pooling cls); a ViT
has --positions 1d and --pooling cls, and gets pixels from -1, black, to 1, white. There, BERT has no byte-pair
encoding: encode with ours, and pass ids.
"""

from pathlib import Path

from extra.encoders.family import BERT, VIT
from extra.encoders.vit import ViT
from extra.family import read_any
from extra.pretrained import bert, vit
from extra.pretrained.layout import label_settings
from extra.pretrained.write import export_command, write_pretrained
from training.cli.console import run_command
from training.family import Trained


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    return export_command(argv, "extra.encoders.export", export_file)


def export_file(source: Path, folder: Path) -> str:
    """Export the model in a checkpoint or a run's folder, and say which and how."""
    trained = read_any(source, (BERT, VIT))
    return f"{trained.about}; exported in the layout of {export(trained, folder)}"


def export(trained: Trained, folder: Path) -> str:
    """Write a trained encoder into a new or empty folder.

    Returns: the name of the architecture, such as BertForMaskedLM.
    Raises: CheckpointError if the layout lacks one of its settings, or if the folder cannot be written.
    """
    if trained.model_class is not ViT:
        return write_pretrained(trained, bert.LAYOUT, folder)
    return write_pretrained(trained, vit.LAYOUT, folder, **label_settings(trained.tokenizer.labels))


if __name__ == "__main__":
    run_command("extra.encoders.export", main, __doc__)
