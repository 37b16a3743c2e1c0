from hypothesis import strategies as st

from workshop.tokenizers.char import CharTokenizer

LINE = "Mit Worten läßt sich trefflich streiten,"
TEXT = st.text(st.characters() | st.characters(categories=["Cs"]))  # with unpaired surrogates


def test_char_ids_are_sorted_by_code_point_and_specials_come_last():
    tokenizer = CharTokenizer.train("ßa Bä", ("<pad>", "<unk>"))
    assert tokenizer.encode(" Baßä") == [0, 1, 2, 3, 4]
    assert tokenizer.specials == {"<pad>": 5, "<unk>": 6}
    assert tokenizer.vocab_size == 7
    assert tokenizer.kind == "char"


def test_unseen_characters_become_unk():
    tokenizer = CharTokenizer.train("abc")
    assert tokenizer.encode("axbx\ud800") == [0, 3, 1, 3, 3]
    assert tokenizer.decode([0, 3, 1]) == "a\ufffdb"
    assert tokenizer.unknown("axbx\ud800") == {"x": 2, "\ud800": 1}


def test_json_does_not_depend_on_the_order_of_the_text():
    assert CharTokenizer.train("abc").to_json() == CharTokenizer.train("cba").to_json()
    expected = {"kind": "char", "characters": ["a", "b"], "specials": ["<pad>", "<unk>"]}
    assert CharTokenizer.train("ba", ("<pad>", "<unk>")).to_json() == expected
