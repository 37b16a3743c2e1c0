"""Errors that a user of the scripts can fix, and counts in messages."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number and what it counts, for a message.

    >>> counted(1, "token"), counted(2048, "token"), counted(0, "axis", "axes")
    ('1 token', '2,048 tokens', '0 axes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


class UserError(Exception):
    """An error that the user can fix: the message is one sentence that says what is wrong, where, and what to do.

    `train.py` and `sample.py` print it to stderr without a traceback and exit with status 1. Mistakes made in
    code (wrong shapes, wrong types) are ordinary ValueErrors and TypeErrors instead.
    """


class OptionError(UserError):
    """An option of a script or preset that does not exist, or whose value is out of range."""


class CorpusError(UserError):
    """A text that cannot be found, fetched, verified or read."""


class TokenizerError(UserError):
    """A tokenizer that cannot be learned from its text or rebuilt from its JSON form."""


class CheckpointError(UserError):
    """A checkpoint that is truncated, comes from another program, or does not match the model."""


class DecodingError(UserError):
    """A decoding setting that is out of range, or a prompt that cannot be continued."""


class TooLittleMemory(UserError, MemoryError):
    """A run needs more memory than its device has."""
