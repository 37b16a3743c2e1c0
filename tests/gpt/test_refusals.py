"""What the scripts cannot do: each mistake gives one sentence, and nothing is written. The shelf has further cases."""

import re
import shlex
from pathlib import Path

import pytest

import sample
import train
from seq2seq.data import SPECIALS
from seq2seq.model import Seq2Seq
from tests.gpt.configs import Seq2SeqConfig
from tests.gpt.saved_models import save, saved_gpt
from tests.tiny_runs import made_up_text, undone
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.char import CharTokenizer
from tinygrad_lite.errors import CheckpointError, CorpusError, OptionError


def each(line: str, sentence: str, *words: str) -> list[tuple[str, str]]:
    """The same mistake several times: these words, in turn, take the place of {} in the line and in the sentence."""
    return [(line.replace("{}", word), sentence.replace("{}", word)) for word in words]


CASES = {
    OptionError: [
        ("train goethe-char --min_lr 1", "--min_lr 1 is above --learning_rate 0.001"),
        ("train --init_from gone", "no such file or folder; it takes 'scratch', 'resume', a checkpoint or the"),
        ("train reverse --src a", "--src needs --tgt"),
        ("train reverse --src a --tgt b --pairs c", "--pairs and --src cannot be combined"),
        ("train reverse --n_head 3", "is not a multiple of --n_head 3"),
        ("train goethe-char --vocab_size 99", "--vocab_size changes nothing with --tokenizer char: omit it"),
        ("train --text text.txt --dataset goethe", "--dataset changes nothing with --text: omit it"),
        ("sample run --score text.txt --temperature 1", "--score cannot be combined with --temperature"),
        *each("sample run --beam 2 {} 0.5", "--beam cannot be combined with {}", "--min_p", "--temperature"),
        *each("sample {} --seed 2 --beam 4", "--seed changes nothing with --beam 4: omit it", "run", "seq"),
        ("sample run --temperature 0 --top_k 5", "--top_k changes nothing with --temperature 0.0: omit it"),
        ("sample run --beam 2 --n_best 3", "--n_best 3: a beam search with --beam 2 finds at most 2"),
        ("sample run --beam 2 --length_penalty -1", "--length_penalty -1: must be at least 0"),
        ("sample seq --start a --n_best 2", "--n_best is an option of beam search"),
    ],
    CorpusError: [
        ("sample run --score gone", "there is no file gone"),
        ("sample run --start FILE:binary.txt", "binary.txt is not UTF-8"),
    ],
    CheckpointError: [
        ("train --resume --out_dir gone", "last.safetensors; train one with: python train.py"),
        ("train --init_from short.txt", "not a readable checkpoint"),
        ("sample", "there is no checkpoint out; train one with: python train.py"),
        ("sample gone.safetensors", "there is no checkpoint gone.safetensors; train one with: python train.py"),
    ],
}


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory):
    """A text, one that is too short, a GPT and a translation model."""
    with pytest.MonkeyPatch.context() as patch, undone():
        patch.chdir(tmp_path_factory.mktemp("place"))
        for name, text in {"text.txt": made_up_text(), "short.txt": "Nun!"}.items():
            Path(name).write_text(text, encoding="utf-8")
        Path("binary.txt").write_bytes(b"\xff\xfe\x00 no text" * 99)
        saved_gpt(Path("run/last.safetensors"), CharTokenizer.train(made_up_text()))
        tokenizer = ByteTokenizer(SPECIALS)
        specials = (tokenizer.specials[name] for name in SPECIALS)
        model = Seq2Seq(Seq2SeqConfig(tokenizer.vocab_size, *specials, n_layer=1, n_head=2, n_embd=8))
        save(Path("seq"), "seq2seq", model, model.state_dict(), tokenizer)
        yield sorted(Path().rglob("*"))


def rows_of(cases):
    """The rows of a table of cases: the error, the command, the sentence."""
    return [(error, *row) for error, rows in cases.items() for row in rows]


def assert_refused(main, words, error, sentence, place):
    """The command ends with one sentence of the error, and the files are the same as before."""
    with pytest.raises(error, match=re.escape(sentence)) as refused:
        main(words)
    assert "\n" not in str(refused.value)
    assert sorted(Path().rglob("*")) == place


@pytest.mark.parametrize(("error", "line", "sentence"), rows_of(CASES))
def test_a_mistake_gives_one_sentence_and_writes_nothing(place, error, line, sentence):
    command, *words = shlex.split(line)
    assert_refused({"train": train, "sample": sample}[command].main, words, error, sentence, place)
