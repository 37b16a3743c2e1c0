import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from text.decoding.stopping import StopText
from tinygrad_lite.errors import DecodingError


def passed(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    """The text that comes out, of which only the possible start of a stop string is held back on the way."""
    stop, text, out = StopText(stops), "", ""
    for piece in pieces:
        text, out = text + piece, out + stop.push(piece)
        held = text[len(out) :]
        assert stop.found or held == "" or any(one.startswith(held) for one in stops)
    return out + stop.finish(), stop.found


def expected(text: str, stops: list[str]) -> tuple[str, bool]:
    """The definition: character by character, until the text ends with a stop string."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


@given(st.lists(st.text("ab", max_size=4), max_size=8), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
@example(["abb"], ["abb", "b"])
def test_a_text_in_any_pieces_ends_before_the_first_stop_string(pieces, stops):
    text = "".join(pieces)
    assert passed(pieces, stops) == passed(list(text), stops) == passed([text], stops) == expected(text, stops)


def test_an_empty_stop_string_is_refused():
    with pytest.raises(DecodingError, match="stop string is empty"):
        StopText(["\n", ""])
