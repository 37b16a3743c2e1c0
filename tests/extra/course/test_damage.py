"""What `docs/course/15-inside/damage.py` removes is what it says, and comes back; the loss is that of what is left."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from docs.course import check
from extra.families import GPT as FAMILY
from extra.inside.gpt import look_inside
from gpt.score import score
from tests.extra.inside.test_gpt import IDS
from tests.gpt.small_gpts import gpt_with_large_weights
from tests.tiny_runs import csv_rows
from tinygrad_lite import Tensor
from training.corpora.texts import load_files

damage = check.load(check.chapters()[15] / "damage.py")
WAYS, damaged, linear_maps, smallest = damage.WAYS, damage.damaged, damage.linear_maps, damage.smallest
GROUPED = {"n_head": 4, "n_kv_head": 2, "head_dim": 8}  # two queries share a head of keys and values


def removed(model, way, share, seed=0, importance=None):
    """Where the weights of each linear map are 0 inside; nothing else is changed, and afterwards nothing is."""
    before = {name: array.copy() for name, array in model.state_dict().items()}
    with damaged(model, way, share, seed, importance):
        zeros = {name: linear.weight.numpy() == 0 for name, linear in linear_maps(model)}
        for name, array in model.state_dict().items():
            gone = zeros.get(name.removesuffix(".weight"), np.zeros(array.shape, bool))
            assert (array == np.where(gone, 0, before[name])).all()
    assert all((before[name] == array).all() for name, array in model.state_dict().items())
    return zeros


@pytest.mark.parametrize("settings", [{}, GROUPED | {"activation": "swiglu"}])
def test_the_share_is_exact_in_every_matrix_and_grows_with_the_same_seed(settings):
    model = gpt_with_large_weights("float32", **{"n_embd": 16} | settings)
    assert len(linear_maps(model)) == 2 * (7 if settings else 6)
    quarter, half, other = (removed(model, WAYS[0], share, seed) for share, seed in ((0.25, 1), (0.5, 1), (0.25, 2)))
    for name, zeros in quarter.items():
        assert (zeros.sum(), half[name].sum()) == (zeros.size / 4, zeros.size / 2)
        assert (zeros <= half[name]).all()
        assert (zeros != other[name]).any()


def test_by_size_exactly_the_smallest_go():
    model = gpt_with_large_weights("float32", n_embd=16)
    zeros = removed(model, "smallest weights", 0.3)
    for name, linear in linear_maps(model):
        size, gone = np.abs(linear.weight.numpy()), zeros[name]
        assert gone.sum() == round(0.3 * gone.size)
        assert size[gone].max() < size[~gone].min()
    assert smallest(np.array([3.0, 1.0, 2.0]), 0.1).tolist() == []


def test_heads_go_in_the_order_of_their_importance_and_without_all_attention_adds_nothing():
    model = gpt_with_large_weights("float32", **{"n_embd": 16} | GROUPED)
    importance = np.array([[5, 1, 6, 7], [8, 4, 2, 3]])
    zeros = removed(model, WAYS[3], 3 / 8, importance=importance)
    heads = [zeros[f"blocks.{layer}.mixer.output"].all(0).reshape(4, 8) for layer in range(2)]
    assert (np.stack(heads) == (importance < 4)[..., None]).all()
    for way in WAYS[2:]:
        with damaged(model, way, 1.0, 1, importance):
            added = look_inside(model, IDS).added
        assert not added[:, 0].any()
        assert added[:, 1].any()


def test_the_importance_is_the_slope_of_the_loss():
    """Against a central difference, in float64: the columns of one head are multiplied by 1 + h and 1 - h."""
    model = gpt_with_large_weights("float64", n_embd=16, **GROUPED)
    tokens = np.random.default_rng(0).integers(0, 11, 26)
    windows = [tokens[None, start : start + 9] for start in (0, 8, 17)]
    found = damage.head_importance(model, tokens, windows=3)
    assert all(parameter.grad is None for parameter in model.parameters())
    for layer, head in np.ndindex(found.shape):
        mixer = model.blocks[layer].mixer
        columns = mixer.output.weight.data[:, head * mixer.head_dim : (head + 1) * mixer.head_dim]
        kept, measured = columns.copy(), []
        for factor in (1 + 1e-4, 1 - 1e-4):
            columns[...] = kept * factor
            measured.append(np.array([float(model.loss((Tensor(w[:, :-1]), Tensor(w[:, 1:])))) for w in windows]))
        columns[...] = kept
        assert found[layer, head] == pytest.approx(np.abs(measured[0] - measured[1]).mean() / 2e-4, rel=1e-5)


def test_the_command_writes_every_number(trained, tmp_path, ran):
    arguments = "out/goethe --text text.txt --characters 300 --shares 1,0.5 --seeds 1,2 --csv all.csv".split()
    table = [line.split() for line in ran(damage.main, *arguments).out.splitlines()[1:]]
    trained, corpus = FAMILY.read(Path("out/goethe")), load_files(["text.txt"])
    held_out = replace(corpus, text=corpus.split()[1][:300])
    undamaged = f"{score(trained.make_model(), trained.tokenizer, held_out).bits_per_character:.4f}"
    assert table[0][1:] == [undamaged] * 4
    rows = csv_rows("all.csv")
    losses = {(row["removed"], row["share"], row["seed"]): row["bits_per_char"] for row in rows}
    seeds = {way: ["1", "2"] if way.startswith("random") else [""] for way in WAYS}
    damages = [(way, share, seed) for share in ("0.5", "1") for way in WAYS for seed in seeds[way]]
    assert list(losses) == [*((way, "0", "") for way in WAYS), *damages]
