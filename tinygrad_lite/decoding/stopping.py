"""Stop strings: a text ends before the first of them, wherever its tokens are cut."""

from collections.abc import Sequence

from tinygrad_lite.cli.errors import DecodingError


class StopText:
    """Lets a text through piece by piece, until it holds one of the stop strings.

    A stop string may be spread over several pieces. What could be the beginning of one is therefore held back until
    it is clear what it is, so that nothing gets out that would have to be taken back.

    The first stop string is the one that is complete first, of several that are complete at once the longest. Then
    the result does not depend on how the text is cut into pieces.

    Args:
        stops: the strings, none of them empty; without any, everything passes.
    Raises: DecodingError if a stop string is empty.

    >>> stop = StopText(["ENDE"])
    >>> [stop.push(piece) for piece in ("Am E", "N", "gel", "EN", "DE da")], stop.found
    (['Am ', '', 'ENgel', '', ''], True)
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        if "" in stops:
            raise DecodingError(
                "a stop string is empty, so every text would stop before it begins: give one a character"
            )
        self.found = False
        self._stops = stops
        self._held = ""

    def push(self, piece: str) -> str:
        """Take the next piece; return what is sure to stand before any stop string. Nothing once one was found."""
        if self.found:
            return ""
        text, self._held = self._held + piece, ""
        matches = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if matches:
            self.found = True
            _, start = min(matches)
            return text[:start]
        end = len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[end:]
        return text[:end]

    def finish(self) -> str:
        """The text is at its end: return what was held back and has not become a stop string."""
        rest, self._held = self._held, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text could be the beginning of the stop string.

    >>> _overlap("Am EN", "ENDE"), _overlap("Am", "ENDE")
    (2, 0)
    """
    lengths = range(min(len(text), len(stop) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)
