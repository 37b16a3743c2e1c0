"""Reported of other programs: text in and out, and how tokens are learned. Docstrings name the public threads."""

import random
import unicodedata
from collections import Counter
from itertools import islice, pairwise, product
from pathlib import Path

import numpy as np
import pytest

from gpt.data import prepare
from gpt.options import GPTOptions
from gpt.sample import write_continuation
from tests.reliability.tiny_models import guard
from tests.text.decoding.test_stopping import expected
from tests.tiny_runs import made_up_text
from text.decoding.sample_options import SampleOptions
from text.tokenizers import learn
from text.tokenizers.base import Tokenizer
from text.tokenizers.bpe import BPETokenizer, learn_merges, merge_steps, reference_merges
from training.corpora.divided_pairs import read_table
from training.corpora.texts import load_files


class Recited:
    """A model that writes these tokens."""

    def __init__(self, tokens, vocab_size):
        self.rows = np.log(np.eye(vocab_size)[tokens] + 1e-9)

    def start(self, prompts, use_cache):
        return self.rows[:1], 1

    def step(self, tokens, place):
        return self.rows[place : place + 1], place + 1


Recited.config = GPTOptions().model_config(4)


@pytest.mark.parametrize("stops", [["ab"], ["b"], ["abab"], ["bb", "abab", "x"], ["😀"], ["€😀", "ba"], ["abba"], []])
def test_a_stop_string_is_found_however_the_text_is_cut_into_tokens(stops, capsys):
    """mzau/mlx-knife#68, SharpAI/SwiftLM#126 and #133, smg-project/smg#2203: in the last token, too."""
    for text in ("aababab", "a€😀"):
        data = text.encode()
        for cuts in product((False, True), repeat=len(data) - 1):
            ends = [0, *(place for place, cut in enumerate(cuts, start=1) if cut), len(data)]
            pieces = [data[start:end] for start, end in pairwise(ends)]
            model, tokenizer = Recited(range(len(pieces)), len(pieces)), Tokenizer(pieces, [])
            options = SampleOptions(greedy=True, max_new_tokens=len(pieces), stop=stops)
            said = "".join(write_continuation(options, model, tokenizer, [0], 0))
            assert said + "\n" == capsys.readouterr().out
            assert said == expected(text, stops)[0]


def of_bytes(word):
    return list(word.encode())


def words_of(text):
    """How often each word occurs."""
    return Counter(BPETokenizer([]).split(text))


RUNS = {"aaa": [], "aaaa": ["aa"], "aaaaa bc bc": ["aa", " b", " bc"], "aaa aaa": ["aa", "aaa"], "aa b aa": ["aa"]}


@pytest.mark.parametrize("text", [*RUNS, "-" * 300, "mit " * 3 + "aaabaaab"])
def test_what_can_be_replaced_only_once_does_not_occur_twice(text):
    """karpathy/minbpe#51, #72, google/sentencepiece#318: in a run, a pair is counted more often than it is replaced."""
    words, before = words_of(text), sum(len(of_bytes(word)) * count for word, count in words_of(text).items())
    for counts, pair, merged in merge_steps(words, of_bytes, [1] * 256):
        after = sum(len(ids) * count for ids, count in merged)
        assert 2 <= before - after <= counts[pair]
        assert before - after == counts[pair] or pair[0] == pair[1]
        before = after
    tokenizer = BPETokenizer.train(text, 300)
    shown = [tokenizer.render(token) for token in range(256, tokenizer.vocab_size)]
    assert (shown, tokenizer.merges) == (RUNS.get(text, shown), reference_merges(words, 44, of_bytes, [1] * 256))


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_the_fast_learner_makes_the_merges_of_the_definition(count):
    """umran666/UniqToken#8, openai/tiktoken#600, huggingface/tokenizers#2058: runs, ties, counts above 2^31."""
    rng = random.Random(count)
    for _ in range(count):
        words = ["".join(rng.choices("aab", k=rng.randint(1, 9))) for _ in range(rng.randint(1, 6))]
        weights = {word: rng.choice((1, 1, 2, 3, 10**9, 2**31 - 1)) for word in words}
        found = [*islice(learn_merges(weights, of_bytes, [1] * 256), 12)]
        assert found == reference_merges(weights, 12, of_bytes, [1] * 256), weights


class Large(Tokenizer):
    """As large as the tokenizer of another program; a text has its highest ids."""

    is_foreign, kind = True, "large"

    def encode_text(self, text):
        return [self.vocab_size - 1 - ord(character) % 3 for character in text]


FORMS = ("NFC", "NFD")


@pytest.mark.parametrize("kind", ["char", "bpe", "word"])
def test_a_letter_is_the_same_however_its_accent_is_written(kind, workplace):
    """google/sentencepiece#421, huggingface/transformers#5738, huggingface/tokenizers#2116: through every door."""
    found, text = [], made_up_text()
    for form in FORMS:
        folder = Path(form)
        folder.mkdir()

        def write(name, text, form=form, folder=folder):
            (folder / name).write_text(unicodedata.normalize(form, text), encoding="utf-8")
            return str(folder / name)

        options = GPTOptions.of(text=[write("text.txt", text)], tokenizer=kind, block_size=8)
        data = prepare(options)
        lines = [f"süß{n}\tgrün{n % 2}\n" for n in range(30)]
        pairs = read_table(Path(write("pairs.tsv", "".join(lines))))
        prompt, stop = (unicodedata.normalize(form, each) for each in ("süß", "ü"))
        prepared = data.tokenizer.encode(data.tokenizer.prepare(prompt))
        stops = SampleOptions(stop=[stop]).stop_strings(data.tokenizer.prepare)
        scored = load_files(options.text).text
        found.append((data.tokenizer.to_json(), [*data.train], data.chars_per_token, pairs))
        found[-1] += (prepared, stops, scored)
        assert Large([b"a"], []).prepare(prompt) == prompt
        assert load_files(options.text, as_is=True).text == unicodedata.normalize(form, text)
    assert found[0] == found[1]


@pytest.mark.parametrize("size", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("run", ["^", "_", "a", "\n", " ", "\u0301", "a\u0301"])
def test_a_tokenizer_is_learned_from_one_long_run_in_linear_time(run, size):
    """openai/tiktoken#195, #15, coder/ai-tokenizer#6: quadratic time would be hours; and no stack overflows."""
    text = run * (size // len(run))
    for kind in ("char", "byte", "bpe", "word"):
        with guard(60):
            tokenizer = learn(kind, text, 400, ["<unk>"])
            assert tokenizer.decode(tokenizer.encode(text)) == text
