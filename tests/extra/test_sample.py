"""sample.py with models of others: it stops at their end token, and they get texts as they are."""

import json

import pytest

from extra.tokenizers.huggingface import HFTokenizer
from gpt import sample as speaking
from tests.extra.pretrained import test_llama as test_llama_layout
from tests.extra.tokenizers import test_huggingface
from tests.test_sample import written
from tests.tiny_runs import sampled

pytestmark = pytest.mark.every_device


@pytest.fixture
def foreign(tmp_path, tokenizers):
    """A function that writes a folder of a Llama with a tokenizer of its own, and an eos_token_id in these files."""
    settings = test_llama_layout.LLAMA | {"vocab_size": 262}
    weights = test_llama_layout.random_weights(settings)
    definition = test_huggingface.gpt2_definition()

    def write(**ends):
        folder = test_llama_layout.write_folder(tmp_path / "foreign", settings, weights)
        (folder / "tokenizer.json").write_text(definition, encoding="utf-8")
        for name, ids in ends.items():
            data = (settings if name == "config" else {}) | {"eos_token_id": ids}
            (folder / f"{name}.json").write_text(json.dumps(data), encoding="utf-8")
        return folder

    return write


@pytest.mark.parametrize("search", [("--greedy",), ("--beam", "1")])
def test_a_model_of_others_stops_at_its_end_token(foreign, capsys, search):
    arguments = ("--start", "der", "--max_new_tokens", "9", *search)
    whole = written(capsys, foreign(), *arguments)
    tokenizer = HFTokenizer.from_folder(foreign())
    first, second = tokenizer.encode(whole.removeprefix("der"))[:2]
    assert first != second
    for ends in ({"config": second}, {"config": first, "generation_config": [second, 261, None]}):
        shorter = written(capsys, foreign(**ends), *arguments)
        assert shorter.removesuffix("\n") == "der" + tokenizer.decode([first])


def test_texts_reach_a_model_of_others_unchanged(foreign, capsys, monkeypatch, tmp_path, typed):
    texts = []
    monkeypatch.setattr(HFTokenizer, "encode_text", lambda self, text: texts.append(text) or [67, 68, 69])
    written(capsys, foreign(), "--start", "e\u0308\r\n", "--max_new_tokens", 0)
    assert texts[-1] == "e\u0308\r\n"
    (tmp_path / "text.txt").write_bytes(b"e\xcc\x88\r\ne")
    written(capsys, foreign(), "--score", str(tmp_path / "text.txt"))
    assert texts[-1] == "e\u0308\r\ne"
    typed("e\u0308\r\n")
    stops, stop_text = [], speaking.StopText
    monkeypatch.setattr(speaking, "StopText", lambda strings: stops.extend(strings) or stop_text(strings))
    written(capsys, foreign(), "--interactive", "--max_new_tokens", 1, "--stop", "e\u0308")
    assert (texts[-1], stops) == ("e\u0308\n", ["e\u0308"])


def test_a_conversation_has_its_history_as_context(trained, capsys, typed):
    settings = ("--max_new_tokens", 4, "--greedy")
    typed("Es\nder\n")
    out, err = sampled(capsys, "--interactive", *settings)
    first, second = out[:4], out[5:9]  # each with a line break after it
    assert sampled(capsys, "--start", "Es\n", *settings)[0] == f"Es\n{first}\n"
    assert sampled(capsys, "--start", f"Es\n{first}\nder\n", *settings)[0] == f"Es\n{first}\nder\n{second}\n"
    assert "> " in err
    assert ">" not in out
