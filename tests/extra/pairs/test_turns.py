"""Conversations taught to a model that others trained: its own marks of turns separate questions from answers."""

import json
from pathlib import Path

import pytest

import sample
import train
from extra.pairs.answering import END, separator_of, turns_ids
from extra.tokenizers.huggingface import TURNS, HFTokenizer
from tests.extra.reliability.tiny_models import write_hf
from tests.extra.tokenizers.test_huggingface import gpt2_definition
from tinygrad_lite.errors import TokenizerError
from training.checkpoint import load_checkpoint

pytest.importorskip("tokenizers")


def definition(*marks: str) -> str:
    """A tokenizer like GPT-2's with special tokens for the marks of turns."""
    given = json.loads(gpt2_definition())
    first = len(given["model"]["vocab"])
    given["model"]["vocab"] |= {mark: first + number for number, mark in enumerate(marks)}
    given["added_tokens"] += [{"id": first + n, "content": mark, "special": True} for n, mark in enumerate(marks)]
    return json.dumps(given)


def test_the_marks_of_turns_get_other_names_and_keep_their_ids():
    tokenizer = HFTokenizer(definition(*TURNS), vocab_size=300)
    renamed = tokenizer.with_specials(("<answer>", END))
    assert [tokenizer.specials[mark] for mark in TURNS] == [renamed.specials[name] for name in ("<answer>", END)]
    assert (renamed.vocab_size, renamed.encode("Ja! <end>")) == (300, tokenizer.encode("Ja! <end>"))
    assert (separator_of(tokenizer), separator_of(renamed)) == ("", "<answer>")
    marks = [tokenizer.specials[mark] for mark in TURNS]
    a, b, c = map(tokenizer.encode, "abc")
    assert turns_ids(renamed, ["a", "b", "c"]) == [*a, marks[0], *b, marks[1], *c]
    with pytest.raises(TokenizerError, match=r"the tokenizer of these weights has no <\|im_start\|>, which could be"):
        HFTokenizer(definition()).with_specials(("<answer>", END))


def test_an_adapter_of_such_a_model_answers_chats_and_resumes(workplace, ran):
    write_hf(Path("base"), HFTokenizer(definition(*TURNS)), n_positions=256)
    chat = "chat --init_from base --lora_rank 2 --held_out 4 --train_pairs 9 --batch_size 1 --optimizer adamw".split()
    chat += "--max_iters 2 --eval_interval 2 --eval_pairs 1 --workers 1".split()
    assert train.main(chat) == 0
    assert train.main(["--resume", "--max_iters", "3", "--out_dir", "out/chat"]) == 0
    assert load_checkpoint(Path("out/chat/last.safetensors")).step == 3
    asked = ("--start", "Hallo!", "--max_new_tokens", 3)
    ran(sample.main, "out/chat", "--chat", *asked)
    assert "Hallo! <answer>" in ran(sample.main, "out/chat", *asked).out
    assert "<answer>" not in ran(sample.main, "base", *asked).out
