"""The errors that a user of the scripts can fix."""


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
    """A checkpoint that is truncated, of another program, or does not match the model."""


class DecodingError(UserError):
    """A decoding setting that is out of range, or a prompt that cannot be continued."""


class TooLittleMemory(UserError, MemoryError):
    """A run needs more memory than its device has."""
