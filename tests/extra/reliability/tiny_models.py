"""Tiny models whose kinds of tokenizers are the shelf's; they join those of tests/reliability/tiny_models.py."""

from importlib.util import find_spec
from pathlib import Path

from extra.tokenizers.end_of_word import EndOfWordTokenizer
from extra.tokenizers.huggingface import HFTokenizer
from tests.extra.pretrained.gpt2_folders import SETTINGS, random_weights, write_folder
from tests.extra.tokenizers.test_huggingface import gpt2_definition
from tests.tiny_runs import made_up_text

TEXT = f"{made_up_text()}<eos> <pad> <bos> <unk> <|endoftext|> </w>\n"
MORE_KINDS = {"bpe-w": ("gpt", lambda: EndOfWordTokenizer.train(TEXT, 90))}
if find_spec("tokenizers"):
    MORE_KINDS["hf"] = ("hf", lambda: HFTokenizer(gpt2_definition()))  # all bytes, five merges and a special


def write_hf(place: Path, tokenizer: HFTokenizer, **changes: object) -> Path:
    """Write a GPT-2 with this tokenizer into a folder in Hugging Face's layout."""
    settings = SETTINGS | {"vocab_size": tokenizer.vocab_size} | changes
    write_folder(place, random_weights(settings, "float32"), **settings)
    (place / "tokenizer.json").write_text(tokenizer.definition, encoding="utf-8")
    return place
