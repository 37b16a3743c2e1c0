from collections import Counter
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from extra.tokenizers.end_of_word import EndOfWordTokenizer
from text.tokenizers import tokenizer_from_json
from text.tokenizers.base import Tokenizer
from text.tokenizers.bpe import MAX_WORD, merge_steps

FEW_LETTERS = st.text("aabbä \n", min_size=1).filter(str.strip)  # many ties, repetitions and overlapping pairs
PAPER = " ".join(["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3)
TEN_MERGES = ["es", "est", "est</w>", "lo", "low", "ne", "new", "newest</w>", "low</w>", "wi"]


def render(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.render(token) for token in tokenizer.encode(text)]


def learned(tokenizer: EndOfWordTokenizer) -> list[str]:
    """The tokens made by merges, in order."""
    first = tokenizer.vocab_size - len(tokenizer.specials) - tokenizer.n_merges
    return [tokenizer.render(first + i) for i in range(tokenizer.n_merges)]


def by_definition(text: str, n_merges: int) -> tuple[list[tuple[int, int]], list[int]]:
    """The merges, and the ids of the text, by counting all pairs again for each merge: algorithm 1 of the paper."""
    symbols = [*sorted(set("".join(text.split()))), "</w>"]

    def spell(word: str) -> list[int]:
        return [symbols.index(symbol) for symbol in [*word, "</w>"]]

    steps = list(islice(merge_steps(Counter(text.split()), spell, [*map(len, symbols)]), n_merges))
    words = {word: ids for word, (ids, _) in zip(Counter(text.split()), steps[-1].words, strict=True)} if steps else {}
    return [step.pair for step in steps], [token for word in text.split() for token in words.get(word, spell(word))]


def test_the_papers_example_gives_its_ten_merges():
    tokenizer = EndOfWordTokenizer.train(PAPER, 10 + 1 + 10 + 1)
    assert learned(tokenizer) == TEN_MERGES
    assert tokenizer.vocab_size == len(set("lowernewestwidest")) + 1 + 10 + 1
    assert render(tokenizer, "lowest newer") == ["low", "est</w>", "new", "e", "r", "</w>"]


@given(FEW_LETTERS)
def test_merges_and_ids_equal_the_definition(text):
    n_characters = len(set("".join(text.split())))
    tokenizer = EndOfWordTokenizer.train(text, n_characters + 1 + 20 + 1)
    assert (tokenizer.merges, tokenizer.encode(text)) == by_definition(text, 20)


def test_the_end_of_word_mark_in_a_text_is_four_characters():
    tokenizer = EndOfWordTokenizer(sorted("ab</w>"), [])
    assert render(tokenizer, "a</w>b") == ["a", "<", "/", "w", ">", "b", "</w>"]
    assert tokenizer.decode(tokenizer.encode("\na</w>b\t")) == "a</w>b "
    # Learned as one token, these four characters still differ from the mark.
    learned_it = EndOfWordTokenizer.train("a</w> " * 5 + "b</w> " * 5, 100)
    assert learned_it.decode(learned_it.encode("a</w> b</w>")) == "a</w> b</w> "


def test_unseen_characters_become_unk_and_do_not_end_a_word():
    tokenizer = EndOfWordTokenizer.train(PAPER, 22)
    assert render(tokenizer, "löw\nnew") == ["l", "<unk>", "w", "</w>", "new", "</w>"]
    assert tokenizer.unknown("lö wö\nx") == {"ö": 2, "x": 1}
    assert tokenizer.decode(tokenizer.encode("löw")) == "l\ufffdw "


def test_long_words_are_cut_and_decoded_whole():
    for length in (MAX_WORD, MAX_WORD + 1):
        text = " ".join(["x" * length] * 3)
        tokenizer = EndOfWordTokenizer.train(text, 300)
        assert tokenizer.decode(tokenizer.encode(text)) == text + " "
        assert tokenizer_from_json(tokenizer.to_json()).merges == tokenizer.merges
