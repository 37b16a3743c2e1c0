"""Checks of chapter 5."""

import random
from collections import Counter
from itertools import pairwise

from text.tokenizers.bpe import BPETokenizer, merge_pair, reference_merges


def LOWNESS(exercise):
    """Go through the merges in the order in which they were learned: e s, es t, est </w>, l o, lo w, n e ..."""
    counts = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
    tokens = [*sorted({letter for word in counts for letter in word}), "</w>"]

    def spell(word):
        return [*map(tokens.index, (*word, "</w>"))]

    answer, right = exercise.LOWNESS, spell("lowness")
    assert "".join(answer) == "lowness</w>", f"{answer} joined together is not lowness</w>"
    for left, after in reference_merges(counts, 10, spell, [len(token) for token in tokens]):
        right = merge_pair(right, (left, after), len(tokens))
        tokens.append(tokens[left] + tokens[after])
    assert list(answer) == [tokens[token] for token in right], f"{answer} is not what the merges produce in their order"


def next_merge(exercise):
    """Add each word's count for every pair in it. min takes the first among equals; its key may be a tuple."""
    cases = [
        {("l", "o"): 9, ("w", "i"): 2, ("w", "i", "d"): 2, ("w", "i", "n"): 3},  # the words' counts matter
        {("b", "a", "n", "a", "n"): 3, ("i", "m"): 5},  # a pair twice in a word
        {("z", "y"): 2, ("a", "b"): 2},  # equals: not by the alphabet
        {("a", "b"): 2, ("z", "y"): 2},
        {("est", "</w>"): 4, ("q", "u"): 4},  # equals: the shorter
        {("th", "e", "a"): 4},
    ]
    rng = random.Random(5)
    for _ in range(50):
        words = [tuple(rng.choices(["a", "b", "n", "na", "ban"], k=rng.randint(2, 5))) for _ in range(4)]
        cases.append({word: rng.randint(2, 4) for word in words})
    for spelled in cases:
        answer = exercise.next_merge(dict(spelled))
        counts = Counter()
        for tokens, count in spelled.items():
            for pair in pairwise(tokens):
                counts[pair] += count
        assert answer in counts, f"in {spelled}, {answer} is not a pair of neighbours"
        most = max(counts.values())
        assert counts[answer] == most, (
            f"in {spelled}, {answer} occurs {counts[answer]} times, another pair {most} times"
        )
        tokens = sorted({token for word in spelled for token in word})
        (right,) = reference_merges(
            spelled, 1, lambda word, tokens=tokens: [tokens.index(t) for t in word], [len(t) for t in tokens]
        )
        assert answer == (tokens[right[0]], tokens[right[1]]), f"in {spelled}, {answer} has an equal that comes first"


def encode(exercise):
    """For each merge in its order, replace its pair from left to right, everywhere in the word."""

    def check(word, merges, right):
        answer = list(exercise.encode(word, list(merges)))
        assert answer == right, f"merges {merges}: {word} as {answer} is not what merging by rank gives"

    check("abc", [("b", "c"), ("a", "b")], ["a", "bc"])  # not the longest from the left
    check("abcbc", [("a", "b"), ("b", "c")], ["ab", "c", "bc"])  # not the most frequent
    check("abab", [("a", "b")], ["ab", "ab"])
    check("aaaaa", [("a", "a"), ("aa", "aa")], ["aaaa", "a"])
    check("ab", [], ["a", "b"])
    rng = random.Random(5)
    words = ["".join(rng.choices("abn", k=rng.randint(1, 9))) for _ in range(60)]
    tokenizer = BPETokenizer.train("\n".join(words), vocab_size=256 + 40)
    merges = [(tokenizer.render(left), tokenizer.render(right)) for left, right in tokenizer.merges]
    for _ in range(100):
        word = "".join(rng.choices("abn", k=rng.randint(1, 12)))
        check(word, merges, [tokenizer.render(token) for token in tokenizer.encode(word)])


def decode(exercise):
    """A token may be half a character: join the bytes of all, then decode with errors="replace"."""
    tokenizer = BPETokenizer.train("süße Grüße, schöne Küsse", vocab_size=256 + 8)
    pieces = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
    for text in ("Gruss", "süße Mühe", "schön 🙂"):
        ids = tokenizer.encode(text)
        answer = exercise.decode(ids, pieces)
        assert answer == text, f"the tokens {[pieces[token] for token in ids]} of {text!r} are decoded as {answer!r}"
    broken = [*b"Er h\xc3", *b"lt \xf0\x9f"]
    answer = exercise.decode(broken, pieces)
    assert answer == tokenizer.decode(broken), (
        f"{bytes(broken)} lacks bytes in two places; as {answer!r}, it does not have U+FFFD there and nowhere else"
    )
