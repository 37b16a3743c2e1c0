"""The page of a translation: the tree holds what the search did, and every hypothesis has its reason."""

import re
from pathlib import Path

import numpy as np
import pytest

from extra.explorer.translation import WatchedModel, tree
from seq2seq.translate import translate
from tests.extra.explorer.test_gpt import explained
from tests.extra.inside.test_seq2seq import TOKENIZER, make_model
from tests.gpt.saved_models import save
from text.decoding.beam import length_factor

EOS = TOKENIZER.specials["<eos>"]


def ending(nats):
    """A model with an end that is more probable by some nats, so that sentences of random weights end."""
    model = make_model().eval()
    for name in ("start", "step"):

        def compute(*given, way=name):
            log_probs, state = getattr(type(model), way)(model, *given)
            return log_probs + nats * (np.arange(log_probs.shape[1]) == EOS), state

        setattr(model, name, compute)
    return model


def searched(model, beam, n_best=1, penalty=0.6):
    watched = WatchedModel(model)
    settings = {"beam": beam, "n_best": n_best, "length_penalty": penalty}
    (found,) = translate(watched, TOKENIZER, ["ab $cab"], **settings)
    (plain,) = translate(model, TOKENIZER, ["ab $cab"], **settings)
    assert [one.tokens for one in plain] == [one.tokens for one in found]  # watching changes nothing
    return found, tree(watched, found, TOKENIZER, beam, penalty)


@pytest.mark.parametrize(("beam", "n_best", "nats"), [(1, 1, 8), (3, 2, 7.5), (4, 1, 7.5)])
def test_the_tree_is_what_the_search_did(beam, n_best, nats):
    found, nodes = searched(ending(nats), beam, n_best)
    steps = [[node for node in nodes if node["step"] == step] for step in range(nodes[-1]["step"] + 1)]
    for step, column in enumerate(steps):
        totals = [node["total"] for node in column]
        assert totals == sorted(totals, reverse=True)
        assert len(column) <= 2 * beam
        continued = [node for node in column if node["fate"] == "continued"]
        assert len(continued) == (min(beam, len(column)) if step + 1 < len(steps) else 0)
        for node in column:
            parent = nodes[node["parent"]] if node["parent"] is not None else {"total": 0.0, "fate": "continued"}
            assert parent["fate"] == "continued"
            assert node["total"] == pytest.approx(parent["total"] + node["log_prob"])
            assert node["why"].startswith(node["fate"]) or node["why"].startswith("given up")
    (end,) = (node for node in nodes if node["won"] and node["step"] == len(found[0].tokens) - 1)
    assert end["total"] == pytest.approx(found[0].log_prob, rel=1e-6)
    assert (end["fate"], end["token"]) == ("ended", "<eos>")
    assert "this is the translation" in end["why"]
    best = max((n for n in nodes if n["fate"] == "ended"), key=lambda n: n["total"] / length_factor(n["step"] + 1, 0.6))
    assert best["total"] / length_factor(best["step"] + 1, 0.6) <= found[0].score + 1e-6
    dropped = [node["why"] for node in nodes if node["fate"] == "dropped"]
    assert all(re.search("not among the|was not among", why) for why in dropped)
    assert len(dropped) > 5 or beam == 1


def test_a_search_that_reaches_the_maximum_length_says_so():
    found, nodes = searched(ending(-9), 2)
    assert not found[0].finished
    last = [node for node in nodes if node["fate"] == "cut off"]
    assert len(last) == 2
    assert all("cut off at the maximum length of 28 tokens" in node["why"] for node in last)


def saved_translator(path: Path, **changes) -> Path:
    """Save the small model of these tests, or one with other settings."""
    model = make_model(**changes)
    return save(path, "seq2seq", model, model.state_dict(), TOKENIZER)


def test_sample_writes_the_page(workplace):
    _, data = explained(saved_translator(Path("t.safetensors")), "--beam", "3", start="ab $cab")
    assert data["source"] == ["a", "b", "·", "$", "c", "a", "b"]
    assert (data["shape"], data["beam"]) == ([2, 2, len(data["target"]), 7], 3)
    assert np.isfinite([node["total"] for node in data["nodes"]]).all()
    assert (data["sentence"], data["context"], data["eos"]) == ("ab $cab", 40, EOS)
    assert EOS not in data["forbidden"]
