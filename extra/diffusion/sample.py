r"""`sample.py` with masked diffusion: continue a prompt, or fill the gaps of a text, in any order; a film of it.

    python sample.py out/diffusion --start "Faust:" --max_new_tokens 100 --steps 16
    python sample.py out/diffusion --start "Es irrt der ___, so lang er strebt." --order random
    python sample.py out/diffusion --start "Faust:" --max_new_tokens 100 --out film.svg

Each _ is a gap of one token, and so is <mask>; the character itself is written \_. What is given stays as it is.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from extra.diffusion import fill
from extra.diffusion.model import MASK, Diffusion
from extra.plots.figure import check_folder, write_or_refuse
from text.decoding.sample_options import refuse_others
from text.tokenizers.base import StreamDecoder, Tokenizer
from text.tokenizers.bpe import BPETokenizer
from tinygrad_lite.errors import OptionError, counted
from training.cli.console import say, write
from training.cli.prompt import read_prompt, warn_of_cut, warn_of_unknown
from training.family import Trained

KNOWN = {*"start max_new_tokens num_samples steps order out temperature top_k top_p min_p greedy seed".split()}
KNOWN |= {*"out_dir device quantize adapter dtype".split()}
GAP = "_"
# Of the film: the characters of a line, the size of one, and seconds.
COLUMNS, WIDTH, HEIGHT, SECONDS = 64, 9, 20, 8
STYLE = """text { font: 15px monospace; white-space: pre; fill: #222 }
rect { fill: #c4c4c4; opacity: 0 }
@media (prefers-color-scheme: dark) { text { fill: #eee } rect { fill: #555 } }
@media (prefers-reduced-motion: no-preference) { rect { opacity: 1; animation: uncover 0.3s forwards } }
@keyframes uncover { to { opacity: 0 } }"""


def sample(options: Any, given: Mapping[str, Any], trained: Trained, model: Diffusion) -> None:
    """Continue the prompt, or fill its gaps.

    Raises: OptionError if the options are not for such a model, or if a text with gaps is too long for it.
    """
    refuse_others(given, KNOWN, "is not for masked diffusion, which takes")
    if options.out:
        if Path(options.out).suffix != ".svg":
            raise OptionError(f"--out {options.out}: the film of a text is an .svg")
        if options.num_samples > 1:
            raise OptionError("--out makes a film of one text: omit --num_samples")
        check_folder(options.out, "--out")
    tokenizer, size = trained.tokenizer, model.config.block_size
    text = tokenizer.prepare(read_prompt(options.start))
    if "start" in given:  # the default prompt, a line break, needs no warning
        warn_of_unknown(tokenizer, re.sub(rf"\\?{GAP}|{MASK}", "", text))
    ids = with_gaps(tokenizer, text)
    # The first token is never hidden.
    before = (tokenizer.encode("\n") or [0]) if ids[:1] in ([], [model.mask]) else []
    texts = np.array([[*before, *ids]] * options.num_samples)
    if model.mask not in ids:
        warn_of_cut([len(ids)], max(size // 2, size - options.max_new_tokens), "last", "prompt")
        texts, when = fill.write(model, texts, options.max_new_tokens, options, tokenizer.textless)
    elif "max_new_tokens" in given:
        raise OptionError(
            "--max_new_tokens continues a text, but one with gaps, which _ marks, is only filled: omit it"
        )
    elif texts.shape[1] > size:
        raise OptionError(f"a text with gaps must fit into {counted(size, 'token')}, but this one has {texts.shape[1]}")
    else:
        texts, when = fill.fill(model, texts, options, tokenizer.textless)
    for number, tokens in enumerate(texts, start=1):
        if options.num_samples > 1:
            say(f"--- sample {number} of {options.num_samples}")
        write(tokenizer.decode(tokens[len(before) :]) + "\n")
    if options.out:
        write_or_refuse(options.out, film(tokenizer, texts[0, len(before) :], when[0, len(before) :]), "--out ")


def with_gaps(tokenizer: Tokenizer, text: str) -> list[int]:
    r"""The tokens of a text with <mask> for each gap; of \_ only the _ is left.

    In byte-pair encoding a word's token begins with the space before it, so a gap replaces that, too.
    """
    if tokenizer.kind == BPETokenizer.kind:
        text = text.replace(f" {GAP}", GAP)
    text = re.sub(rf"(?<!\\){GAP}", MASK, text).replace(rf"\{GAP}", GAP)
    return tokenizer.encode(text, allow_special=[MASK])


def film(tokenizer: Tokenizer, tokens: Sequence[int], when: Sequence[int]) -> str:
    """An SVG in which each token is covered until its step; for readers who prefer no motion, none is."""
    stream, lines, covers, delay = StreamDecoder(tokenizer), [""], [], SECONDS / max(1, *when)
    for token, step in zip(tokens, when, strict=True):
        for number, piece in enumerate(stream.push(int(token)).split("\n")):
            if number or len(lines[-1]) + len(piece) > COLUMNS:
                lines.append("")
            if step and piece:
                cover = f'<rect x="{WIDTH * len(lines[-1])}" y="{HEIGHT * len(lines)}" width="{WIDTH * len(piece)}"'
                covers.append(f'{cover} height="{HEIGHT}" style="animation-delay: {step * delay:.2f}s"/>')
            lines[-1] += "".join(letter if letter.isprintable() else " " for letter in piece)
    box = f"0 {HEIGHT} {WIDTH * COLUMNS} {HEIGHT * len(lines)}"
    texts = [f'<text y="{HEIGHT * n + 15}">{escape(line)}</text>' for n, line in enumerate(lines, start=1)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}">\n<style>{STYLE}</style>'
    return "\n".join([head, *texts, *covers, "</svg>\n"])
