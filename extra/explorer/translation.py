"""The page of a translation model: a recorded translation with its attention and its beam search, and what one types.

    python sample.py out/translate-de-en --start "Der Mann liest ein Buch." --beam 4 --explain page.html

`translate` is given a model that notes every step of the search (`WatchedModel`). From these notes `tree` lists all
hypotheses that were considered: those that were continued, those that ended, and those that were dropped, each with the
reason. The page carries the model, if it is small enough, and translates other sentences greedily.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from extra.explorer.gpt import computing, settings, why_recorded
from extra.explorer.page import assemble, described, halves, panels_of
from extra.inside import pieces
from extra.inside.seq2seq import attention_weights
from extra.plots.figure import write_or_refuse
from seq2seq.data import EOS
from seq2seq.model import Seq2Seq
from seq2seq.sample import sentences_in
from seq2seq.translate import Translation, longest_translation, penalty_of, translate
from text.decoding.beam import length_factor
from text.decoding.sampling import permitted
from text.tokenizers.base import Tokenizer
from tinygrad_lite.errors import OptionError, counted
from tinygrad_lite.generator import GenerationState
from training.cli.console import say
from training.cli.prompt import prompt_lines
from training.family import Trained

SCRIPTS = ("model", "tokenizer", "translator", "translation")
BEAM, MAX_BEAM = 4, 16  # hypotheses, unless --beam says otherwise; a wider tree would be unreadable


class WatchedModel:
    """A model, and its own state, that records what each step of the search saw and chose while `translate` uses it.

    Attributes:
        limit: the maximum length of the translation in tokens.
        log_probs: for each step, those of the tokens that may follow each open hypothesis: (K, V).
        parents, tokens: for each step except the last, which hypothesis each kept one continues, and with which token:
        (K',).
    """

    def __init__(self, model: Seq2Seq) -> None:
        self.model, self.config = model, model.config
        self.log_probs, self.parents, self.tokens = [], [], []

    def start(self, sources: Sequence[Sequence[int]]) -> tuple[np.ndarray, Self]:
        """Like the model's `start`, for one source."""
        self.limit = longest_translation(len(sources[0]), self.config.block_size)
        return self._noted(*self.model.start(sources))

    def step(self, tokens: np.ndarray, state: Self) -> tuple[np.ndarray, Self]:
        """Like the model's `step`."""
        self.tokens.append(tokens)
        return self._noted(*self.model.step(tokens, self.state))

    def select(self, rows: np.ndarray) -> Self:
        """Like the state's `select`, which the search calls once before each step."""
        self.parents.append(rows)
        self.state = self.state.select(rows)
        return self

    def _noted(self, log_probs: np.ndarray, state: GenerationState) -> tuple[np.ndarray, Self]:
        self.log_probs.append(log_probs)
        self.state = state
        return log_probs, self


def tree(
    watched: WatchedModel, found: Sequence[Translation], tokenizer: Tokenizer, beam: int, length_penalty: float
) -> list[dict[str, Any]]:
    """All hypotheses that a search considered: at each step the 2 beam best continuations.

    Args:
        found: the result of the search, best first.
    Returns: for each, its step, its parent (the index of an earlier one, or None), token, log_prob (of the token),
        total (of the hypothesis), fate ("continued", "ended", "dropped" or "cut off"), whether it is part of the
        translation that won, and why.
    """
    eos = tokenizer.specials[EOS]
    forbidden = [token for token in tokenizer.textless if token != eos]
    nodes: list[dict[str, Any]] = []
    open_ones: list[dict[str, Any]] = [{"index": None, "total": 0.0, "tokens": []}]
    for step, log_probs in enumerate(watched.log_probs):
        totals = np.array([one["total"] for one in open_ones])[:, None] + permitted(log_probs, forbidden)
        order = np.argsort(-totals, axis=None, kind="stable")[: 2 * beam]
        places = zip(*np.unravel_index(order, totals.shape), strict=True)
        places = [place for place in places if totals[place] > -np.inf]
        if step < len(watched.tokens):
            kept = list(zip(watched.parents[step].tolist(), watched.tokens[step].tolist(), strict=True))
            fates = dict.fromkeys(kept, "continued")
        else:
            kept = [place for place in places if place[1] != eos][:beam]
            fates = dict.fromkeys(kept, "cut off")
        fates |= {place: "ended" for place in places[:beam] if place[1] == eos}
        grown: dict[tuple[int, int], dict[str, Any]] = {}
        for row, token in places:
            parent, total = open_ones[row], float(totals[row, token])
            grown[row, token] = {
                "index": len(nodes) + len(grown),
                "step": step,
                "parent": parent["index"],
                "token": pieces(tokenizer, [int(token)])[0] or EOS,
                "tokens": [*parent["tokens"], int(token)],
                "log_prob": total - parent["total"],
                "total": total,
                "fate": fates.get((row, token), "dropped"),
            }
        explain_fates([*grown.values()], found, beam, length_penalty, watched.limit)
        nodes += grown.values()
        open_ones = [grown[one] for one in kept]
    winner = found[0].tokens if found else []
    for node in nodes:
        node["won"] = node["tokens"] == winner[: len(node["tokens"])]
        node["text"] = "".join(pieces(tokenizer, node.pop("tokens")))
    return nodes


def explain_fates(
    nodes: Sequence[dict[str, Any]], found: Sequence[Translation], beam: int, length_penalty: float, limit: int
) -> None:
    """Say why each hypothesis of one step was continued, ended or dropped."""
    kept = [node["total"] for node in nodes if node["fate"] in ("continued", "cut off")]
    for node in nodes:
        fate, length = node["fate"], len(node["tokens"])
        score = node["total"] / length_factor(length, length_penalty)
        bound = node["total"] / length_factor(limit, length_penalty)
        if fate == "continued":
            node["why"] = f"continued: one of the {beam} best that have not ended"
        elif fate == "cut off" and length == limit:
            node["why"] = f"cut off at the maximum length of {counted(limit, 'token')}, with score {score:.4f}"
        elif fate == "cut off":
            why = f"its score could not exceed {bound:.4f}, and the result has {found[-1].score:.4f}"
            node["why"] = f"given up when the search ended: however it continued, {why}"
        elif fate == "ended":
            ranks = [f"number {i}" for i, one in enumerate(found, start=1) if one.tokens == node["tokens"]]
            place = f"{ranks[0]} of the result" if ranks else f"below the {found[-1].score:.4f} of the result"
            best = "the best of all: this is the translation"
            node["why"] = f"ended with score {score:.4f}, {best if ranks == ['number 1'] else place}"
        elif node["token"] == EOS:
            node["why"] = f"dropped: it ended, but was not among the {beam} best of this step"
        else:
            last = f", the last of which has {min(kept):.4f}" if kept else ""
            node["why"] = f"dropped: with log p {node['total']:.4f} it is not among the {beam} best{last}"


def explain(options: Any, given: Mapping[str, Any], trained: Trained, model: Seq2Seq, text: str) -> None:
    """Write the page of a translation to the file that --explain names.

    Args:
        text: a sentence; a line break may follow it.
    Raises: OptionError if there is not exactly one sentence, if an option does not apply, or if the file cannot be
        written.
    """
    if others := [f"--{name}" for name in given if name in ("greedy", "temperature", "top_k", "top_p", "min_p")]:
        raise OptionError(f"--explain shows the beam search of a translation, so omit {others[0]}")
    if options.beam > MAX_BEAM:
        raise OptionError(f"--beam {options.beam}: the page shows a tree of at most {MAX_BEAM} hypotheses per step")
    (sentence,) = sentences_in([only_sentence(prompt_lines(text), "--explain")], model, trained.tokenizer)
    tokenizer, about = trained.tokenizer, described(trained).replace("seq2seq", "an encoder-decoder", 1)
    beam = options.beam or BEAM
    penalty = penalty_of(model, options.length_penalty)
    watched = WatchedModel(model)
    (found,) = translate(watched, tokenizer, [sentence], beam=beam, n_best=options.n_best, length_penalty=penalty)
    shown = attention_weights(model, tokenizer, sentence, found[0].tokens)
    data = {
        "source": shown.keys,
        "target": shown.queries,
        "translation": found[0].text,
        "shape": list(shown.weights.shape),
        "sentence": sentence,
        "beam": beam,
        "nodes": tree(watched, found, tokenizer, beam, penalty),
    }
    intro = ["It runs here, in this file: type a sentence.", f"This is your model: {about}."]
    blobs = {"recorded-attention": halves(shown.weights)}
    if why := why_recorded(trained, model, "one sentence"):
        say(f"note: {why}")
        intro[0] = f"{why[0].upper()}{why[1:]}."
    else:
        model_data, weights = computing(trained, [trained.weights])
        config, blobs = trained.config, blobs | weights
        data |= model_data | {"config": settings(config), "context": config.block_size}
        data |= {"bos": config.bos, "eos": config.eos}
        data["forbidden"] = [token for token in tokenizer.textless if token != config.eos]
    html = assemble("Inside your translation model", intro, panels_of("translation"), data, blobs, SCRIPTS)
    write_or_refuse(options.explain, html, "--explain ")
    say(f"wrote {options.explain}; open it in a browser")


def only_sentence(lines: Sequence[str], option: str) -> str:
    """The sentence of a single line, with single spaces between its words.

    Raises: OptionError that names the option if there is not exactly one line, or if it is empty.
    """
    sentences = [" ".join(line.split()) for line in lines]
    if len(sentences) != 1 or not sentences[0]:
        raise OptionError(f"{option} needs exactly one line, with a sentence; lines given: {len(sentences)}")
    return sentences[0]
