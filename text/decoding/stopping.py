"""Stop strings: a text ends before the first of them, however it is split into tokens."""

from collections.abc import Sequence

from tinygrad_lite.errors import DecodingError


class StopText:
    """Passes on a text piece by piece until it contains one of the stop strings.

    A stop string may be spread over several pieces. So a possible beginning of one is held back until it is clear
    whether it is one.

    The first stop string is the one that is complete first; if several are complete at the same position, the longest.
    So the result does not depend on how the text is split into pieces.

    Args:
        stops: the strings, none of them empty; without any, the whole text passes.
    Raises: DecodingError if a stop string is empty.

    >>> stop = StopText(["ENDE"])
    >>> [stop.push(piece) for piece in ("Am E", "N", "gel", "EN", "DE da")], stop.found
    (['Am ', '', 'ENgel', '', ''], True)
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        if "" in stops:
            raise DecodingError(
                "a stop string is empty, so every text would stop before it begins: give it at least one character"
            )
        self.found = False
        self._stops = stops
        self._held = ""

    def push(self, piece: str) -> str:
        """Take the next piece; return the text that certainly precedes any stop string; nothing after one was found."""
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
        """End the text: return the part that was held back and is not a stop string."""
        rest, self._held = self._held, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of the text that is a beginning of the stop string.

    >>> _overlap("Am EN", "ENDE"), _overlap("Am", "ENDE")
    (2, 0)
    """
    lengths = range(min(len(text), len(stop) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)
