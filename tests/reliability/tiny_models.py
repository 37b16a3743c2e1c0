"""Tiny models with random weights, one for each kind of tokenizer, and `sample.py` run on them as a shell would.

Everything runs in this process, which is a hundred times faster than starting one; only the streams are replaced.
"""

import io
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import numpy as np

import sample
from gpt.model import GPT
from seq2seq.data import BOS, EOS, PAD, SPECIALS
from seq2seq.model import Seq2Seq
from tests.gpt.configs import GPTConfig, Seq2SeqConfig
from tests.tiny_runs import made_up_text, undone
from text.tokenizers.base import UNKNOWN, Tokenizer
from text.tokenizers.bpe import BPETokenizer
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.char import CharTokenizer
from text.tokenizers.word import WordTokenizer
from training.checkpoint import Checkpoint, save_checkpoint
from training.cli.console import run_command

END_OF_TEXT = "<|endoftext|>"
TEXT = made_up_text() + "<eos> <pad> <bos> <unk> <|endoftext|> </w>\n"  # so that no letter of a special is unknown


# By name: the family, and a function that makes the tokenizer.
KINDS: dict[str, tuple[str, Callable[[], Tokenizer]]] = {
    "char": ("gpt", lambda: CharTokenizer.train(TEXT)),
    "byte": ("gpt", ByteTokenizer),
    "word": ("gpt", lambda: WordTokenizer.train(TEXT, 40)),
    "bpe": ("gpt", lambda: BPETokenizer.train(TEXT, 290)),
    "pairs-char": ("seq2seq", lambda: CharTokenizer.train(TEXT, [*SPECIALS, UNKNOWN])),
    "pairs-byte": ("seq2seq", lambda: ByteTokenizer(SPECIALS)),
    "pairs-bpe": ("seq2seq", lambda: BPETokenizer.train(TEXT, 290, SPECIALS)),
}
if find_spec("extra"):
    from tests.extra.reliability.tiny_models import MORE_KINDS, write_hf

    KINDS |= MORE_KINDS


WRITERS = [kind for kind, (family, _) in KINDS.items() if family != "seq2seq"]


def make_model(kind: str, folder: Path, block_size: int = 24) -> Path:
    """Write a model of this kind into a folder; return the path to pass to `sample.py`."""
    family, make = KINDS[kind]
    tokenizer = make()
    if family == "hf":
        return write_hf(folder / kind, tokenizer)
    shape = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": block_size, "bias": True, "dropout": 0.0}
    if family == "gpt":
        model = GPT(GPTConfig(tokenizer.vocab_size, **shape))
    else:
        pad, bos, eos = (tokenizer.specials[name] for name in (PAD, BOS, EOS))
        model = Seq2Seq(Seq2SeqConfig(tokenizer.vocab_size, pad, bos, eos, **shape))
    noise, weights = np.random.default_rng(3).standard_normal, model.state_dict()
    weights = {name: (array + 0.3 * noise(array.shape)).astype(np.float32) for name, array in weights.items()}
    path = folder / f"{kind}.safetensors"
    settings = model.config.to_json()
    save_checkpoint(path, Checkpoint(family, settings, {}, tokenizer.to_json(), 1, None, None, "", weights, {}))
    return path


@dataclass
class Ended:
    """How a command ended: its status, and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The last line."""
        return self.err.rstrip("\n").rpartition("\n")[2]


class Hangs(BaseException):
    """Something takes far too long. Not an Exception, so that no handler in the code catches it."""


@contextmanager
def guard(seconds: int, of: str = "PROF") -> Iterator[None]:
    """Raise Hangs if the block takes more seconds of the processor's time, or of the clock ("REAL"); not on Windows."""
    if not hasattr(signal, "SIGPROF"):
        yield
        return
    number, timer = {"PROF": signal.SIGPROF, "REAL": signal.SIGALRM}[of], getattr(signal, f"ITIMER_{of}")

    def stop(number: int, frame: object) -> None:
        raise Hangs(f"not over after {seconds} seconds")

    before = signal.signal(number, stop)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)


class Terminal(io.BytesIO):
    """Bytes that claim to go to a terminal."""

    def isatty(self) -> bool:
        return True


def sample_py(*words: object, stdin: bytes = b"", terminal: bool = False, seconds: int = 60) -> Ended:
    """Run `sample.py` with this command line and this input.

    What would be a traceback in a separate process is an exception here; so is a NumPy warning, by pytest's settings.
    """
    out, err = Terminal() if terminal else io.BytesIO(), io.BytesIO()
    streams = {
        "stdin": io.TextIOWrapper(io.BytesIO(stdin), "utf-8"),
        "stdout": io.TextIOWrapper(out, "ascii"),  # sample.py must not rely on the locale
        "stderr": io.TextIOWrapper(err, "ascii"),
        "argv": ["sample.py", *map(str, words)],
    }
    with mock.patch.multiple(sys, **streams), undone(), guard(seconds):
        try:
            run_command("sample.py", sample.main)
        except SystemExit as ended:
            status = ended.code
        streams["stdout"].flush()
        streams["stderr"].flush()
        return Ended(status, out.getvalue().decode("utf-8"), err.getvalue().decode("utf-8"))


def check_refusal(ended: Ended, given: str) -> None:
    """Check that the command was refused in one sentence on stderr; `given` says what was tried."""
    assert ended.status in (1, 2), f"status {ended.status} of {given}: {ended.err}"
    assert "Traceback" not in ended.err, given
    assert ended.sentence.startswith("sample.py: "), f"{given}: {ended.err!r}"
    assert len(ended.sentence) > 20, f"{given}: {ended.err!r}"


# Ranges of characters: ASCII, Latin, combining marks, Hebrew and Arabic, Indic, directional marks, CJK, emoji, private
# use, the planes up to the last, lone surrogates.
RANGES = [(0, 0x7F), (0x80, 0x24F), (0x300, 0x36F), (0x590, 0x6FF), (0x900, 0xDFF), (0x2000, 0x206F), (0x4E00, 0x9FFF)]
RANGES += [(0xAC00, 0xD7A3), (0x1F300, 0x1FAFF), (0xE000, 0xF8FF), (0xFFF0, 0xFFFF), (0x10000, 0x10FFFF)]
SURROGATES = (0xD800, 0xDFFF)
SNIPPETS = (
    "\0·\r\n·\r·\n·\u2028·\x85·\ufeff·e\u0301·👩\u200d👩\u200d👧·\u202eabc\u202c·<eos>·<|endoftext|>·<unk>·</w>·<pad>"
)
SNIPPETS = [*SNIPPETS.split("·"), "\x1b[31m", "der Mensch", "  ", "\ud83d\ude00", "\u0f73\u0f71", "ẛ̣"]


def random_text(rng: random.Random, longest: int = 40) -> str:
    """A text of any characters: from one range, from all of them, of snippets, or one run."""
    length = rng.randrange(longest)
    ranges = [rng.choice([*RANGES, SURROGATES])] if rng.random() < 0.5 else [*RANGES, SURROGATES]
    drawn = [chr(rng.randint(*rng.choice(ranges))) for _ in range(length)]
    drawn += rng.choices(SNIPPETS, k=rng.randrange(4))
    rng.shuffle(drawn)
    text = "".join(drawn)
    return text[:1] * (rng.randrange(1, 8) * longest) + text if rng.random() < 0.1 else text
