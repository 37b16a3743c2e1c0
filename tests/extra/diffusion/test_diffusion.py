"""Masked diffusion: its loss is a bound, its texts have the model's distribution, and its runs are runs like others."""

import itertools
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import sample
import train
from extra.diffusion.family import DIFFUSION
from extra.diffusion.fill import fill, write
from extra.diffusion.model import Diffusion, hidden_sets, hide
from extra.diffusion.task import DiffusionOptions
from extra.options import ShelfSampleOptions
from extra.pretrained import export
from gpt.config import GPTConfig
from tests.tiny_runs import apart, arguments, assert_resumes, losses, run_training, sampled
from tinygrad_lite.errors import CheckpointError, OptionError
from tinygrad_lite.tensor import Tensor

TINY = {"n_layer": 1, "n_head": 1, "n_embd": 8, "positions": "rotary"}
RUN = {"tokenizer": "char", "eval_iters": 0}

pytestmark = pytest.mark.usefixtures("workplace")


@pytest.fixture
def model():
    """A model of four positions and the tokens a, b and <mask>, with weights far from even."""
    made, rng = Diffusion(GPTConfig(vocab_size=3, block_size=4, **TINY)), np.random.default_rng(4)
    made.load_state_dict({name: np.float32(0.8 * rng.normal(size=w.shape)) for name, w in made.state_dict().items()})
    made.eval()
    return made


def sets_of(length: int, count: int) -> np.ndarray:
    """All sets of this many hidden tokens of a row whose first is given."""
    found = itertools.combinations(range(1, length), count)
    return np.array([np.isin(np.arange(length), places) for places in found])


def bound(model, text: np.ndarray) -> float:
    """The mean of the loss over all numbers of hidden tokens, and over all sets of so many."""
    means = []
    for count in range(1, len(text)):
        sets = sets_of(len(text), count)
        means.append(model.loss(hide(np.tile(text, (len(sets), 1)), sets, model.config.vocab_size - 1, "cpu")).item())
    return np.mean(means)


def probability(model, text: np.ndarray) -> float:
    """p(x): the mean over all orders of the product of what is predicted for each token given those before it."""
    each = []
    for order in itertools.permutations(range(1, len(text))):
        ids, log_p = np.where(np.arange(len(text)) > 0, model.mask, text)[None], 0.0
        for place in order:
            log_probs = model(Tensor(ids), Tensor(np.array([place]))).log_softmax().numpy()[0]
            log_p += log_probs[text[place]]
            ids[0, place] = text[place]
        each.append(math.exp(log_p))
    return np.mean(each)


TEXTS = [np.array([0, *rest]) for rest in itertools.product((0, 1), repeat=3)]


def test_no_text_is_less_probable_than_the_bound_says(model):
    exact = np.array([probability(model, text) for text in TEXTS])
    bounds = np.array([bound(model, text) for text in TEXTS])
    assert exact.sum() == pytest.approx(1, abs=1e-5)
    assert (3 * bounds >= -np.log(exact) - 1e-5).all()
    assert (3 * bounds > -np.log(exact) + 1).any()  # its orders differ, or this would show nothing


def test_frequencies_give_their_entropy_and_a_token_that_is_read_gives_less(monkeypatch):
    """A bound that is too good is a leak: what predicts frequencies gets their entropy, whatever is hidden."""
    tokens = np.random.default_rng(1).choice(4, (64, 9), p=(0.4, 0.3, 0.2, 0.1))
    counts = np.bincount(tokens[:, 1:].ravel(), minlength=4)
    shares = counts / counts.sum()
    model = Diffusion(GPTConfig(vocab_size=5, block_size=9, **TINY))
    entropy = -(shares * np.log(shares)).sum()

    def frequencies(self, ids, places):
        return Tensor(np.tile(np.log(shares), (len(places.numpy()), 1)))

    def mean() -> float:
        """Over all sets of hidden tokens of a size that are neighbours on a circle: each token is in as many."""
        found = []
        for count in range(1, 9):
            sets = (np.arange(8) + np.arange(8)[:, None]) % 8 < count
            for hidden in np.pad(sets, ((0, 0), (1, 0))):
                found.append(model.loss(hide(tokens, np.tile(hidden, (64, 1)), 4, "cpu")).item())
        return np.mean(found)

    monkeypatch.setattr(Diffusion, "forward", frequencies)
    assert mean() == pytest.approx(entropy, abs=1e-9)

    def neighbours(self, ids, places):
        """Of a model that reads its left neighbour where it is shown, and believes that it is repeated."""
        left = ids.numpy().ravel()[places.numpy() - 1]
        return Tensor(np.where((left < 4)[:, None], 9.0 * np.eye(5)[left][:, :4], np.log(shares)))

    monkeypatch.setattr(Diffusion, "forward", neighbours)
    assert mean() > entropy  # in independent tokens there is nothing to read


def test_the_papers_weight_has_the_same_expectation():
    """Hidden with probability t, weight 1/t, integrated over t (exactly: a polynomial): the weight of a set is 1/m."""
    t, w = np.polynomial.legendre.leggauss(8)
    t, w = (t + 1) / 2, w / 2
    for m in range(1, 8):
        weights = hide(np.zeros((1, 8), int), np.arange(8)[None] > 7 - m, 2, "cpu").weights.numpy()
        expected = (w * t ** (m - 1) * (1 - t) ** (7 - m)).sum() * math.comb(7, m)
        assert weights == pytest.approx(m * [expected])


def test_hidden_tokens_do_not_reach_the_model_and_the_shown_ones_all_do(model):
    text = np.array([[0, 1, 1, 0]])
    sets = np.array([[False, True, False, False]])
    shown = model(*hide(text, sets, 2, "cpu")[:2]).numpy()
    hidden = model(*hide(np.array([[0, 0, 1, 0]]), sets, 2, "cpu")[:2]).numpy()
    assert (shown == hidden).all()
    for place in (0, 2, 3):  # on both sides
        other = text.copy()
        other[0, place] = 1 - other[0, place]
        assert (model(*hide(other, sets, 2, "cpu")[:2]).numpy() != shown).any()


def test_every_device_computes_the_same_loss_and_uncovers_the_same(model, device):
    text, sets = np.array([[0, 1, 1, 0], [0, 0, 1, 1]]), hidden_sets(np.array([0.2, 0.9]), 4, np.random.default_rng(1))
    gaps, options = np.array([[0, 2, 1, 2]]), ShelfSampleOptions(greedy=True)
    expected, found = model.loss(hide(text, sets, 2, "cpu")).item(), fill(model, gaps, options)[0]
    model.to(device)
    loss = model.loss(hide(text, sets, 2, device))
    loss.backward()
    assert loss.item() == pytest.approx(expected, abs=1e-5)
    assert np.abs(model.token_embedding.weight.grad.numpy()).max() > 0
    assert (fill(model, gaps, options)[0] == found).all()


@pytest.mark.parametrize(("steps", "order"), [(3, "random"), (3, "confidence")])
def test_texts_drawn_one_by_one_in_random_order_have_the_models_distribution(model, steps, order):
    count = 1000
    begin = np.tile([0, 2, 2, 2], (count, 1))
    options = ShelfSampleOptions(temperature=1.0, top_k=0, steps=steps, order=order)
    found, when = fill(model, begin, options)
    assert (np.sort(when[:, 1:], axis=1) == [1, 2, 3]).all()
    seen = np.bincount(found[:, 1:] @ [4, 2, 1], minlength=8)
    expected = count * np.array([probability(model, text) for text in TEXTS])
    chi2 = ((seen - expected) ** 2 / expected).sum()
    assert (chi2 < 24.3) == (order == "random")  # of 7 degrees of freedom: one in a thousand is above


def test_texts_keep_what_is_given_and_depend_on_their_row_alone(model):
    options = ShelfSampleOptions(steps=2)
    text = np.array([[0, 2, 1, 2]] * 3)
    found, when = fill(model, text, options)
    assert (found[:, [0, 2]] == text[:, [0, 2]]).all()
    assert (found != 2).all()
    assert ((when > 0) == (text == 2)).all()
    assert (fill(model, text[:1], options)[0] == found[:1]).all()
    assert (fill(model, text, options, forbidden=[1, 2])[0][:, [1, 3]] == 0).all()
    long, steps = write(model, np.array([[0, 1]]), 9, options)
    assert (long.shape, long[0, :2].tolist(), (np.diff(steps[0]) >= 0).sum() >= 5) == ((1, 11), [0, 1], True)
    assert (write(model, np.array([[0, 1]]), 0, options)[0] == [[0, 1]]).all()


# --- runs -----------------------------------------------------------------------------------------------------


def run(**more):
    """A tiny run."""
    return run_training("diffusion", **RUN | more)


def test_a_run_learns_reports_a_bound_and_resumes_bit_for_bit(capsys):
    found = assert_resumes(*arguments("diffusion", **RUN, dropout=0.1, sample_tokens=20, data_order="epochs"))
    assert re.search(r"nats per token, a bound: at most [\d.]+ bits per character", capsys.readouterr().err)
    evaluated = losses(found, "val_loss")
    assert evaluated[10] < evaluated[0] - 0.1
    bits = losses(found, "bits_per_char")[10]
    assert bits == pytest.approx(evaluated[10] / math.log(2))  # a token is a character here


def test_several_processes_and_micro_steps_learn_the_same():
    one, two, three = (
        run(out_dir=f"run{number}", max_iters=2, dropout=0.0, **more)
        for number, more in enumerate(({}, {"workers": 2}, {"batch_size": 1, "gradient_accumulation_steps": 4}))
    )
    assert max(apart(one, two), apart(one, three), apart(one, two, "val_loss")) < 1e-4


def test_every_held_out_token_but_the_first_is_predicted_as_often_as_asked():
    options = DiffusionOptions.of(text=["text.txt"], tokenizer="char", eval_masks=3, block_size=8)
    task = DIFFUSION.make_task(options)
    batches = [*task.validation_batches()]
    assert sum(count for _, count in batches) == 3 * (len(task.data.held_out) - 1)
    per_rank = [[count for _, count in task.validation_batches(rank, 2)] for rank in (0, 1)]
    assert sorted(per_rank[0] + per_rank[1]) == sorted(count for _, count in batches)
    again = [*task.validation_batches()]
    assert all((a.ids.numpy() == b.ids.numpy()).all() for (a, _), (b, _) in zip(batches, again, strict=True))


def test_a_text_is_continued_filled_and_filmed(capsys):
    run()
    words = ["run", "--start=Es irrt der ", "--max_new_tokens=12", "--steps=3"]
    said = sampled(capsys, *words, "--num_samples=2")
    assert said.out.startswith("Es irrt der ")
    assert "of a prompt, only the last 4 tokens can be read" in said.err
    assert sampled(capsys, *words).out.split("\n")[0] == said.out.split("\n")[0]
    assert sampled(capsys, *words, "--seed=2", "--order=random").out != said.out
    for more in (["--greedy"], ["--top_k=3", "--top_p=0.9", "--temperature=2"]):
        filled = sampled(capsys, "run", "--start=_s irr_", *more).out
        assert re.fullmatch(r".s irr.\n", filled, re.DOTALL)
    assert sampled(capsys, "run", "--start=", "--max_new_tokens=3", "--seed=3", "--out=film.svg").out
    assert ElementTree.parse("film.svg").getroot()[1].text  # not the line break that is read first


REFUSED = {
    "--explain=p.html": "--explain is not for masked diffusion, which takes --adapter",
    "--beam=2": "--beam is not for masked diffusion",
    "--out=film.png": "--out film.png: the film of a text is an .svg",
    "--out=film.svg --num_samples=2": "omit --num_samples",
    "--start=E_ --max_new_tokens=3": "--max_new_tokens continues a text, but one with gaps, which _ marks, is only",
    "--start=Es_irrt_der": "a text with gaps must fit into 8 tokens, but this one has 11",
}


def test_what_cannot_be_done_is_refused_in_one_sentence():
    run(max_iters=0)
    for words, sentence in REFUSED.items():
        with pytest.raises(OptionError, match=re.escape(sentence)):
            sample.main(["run", *words.split()])
    with pytest.raises(CheckpointError, match="holds a model of the family 'diffusion', not 'gpt'"):
        export.main(["run", "exported"])
    for words, sentence in (
        ("diffusion --positions=alibi", "--positions alibi only looks back, and here both sides are seen"),
        ("diffusion --block_size=1", "--block_size 1: the first token of a window is given, so it needs another one"),
    ):
        with pytest.raises(OptionError, match=re.escape(sentence)):
            train.main([*words.split(), "--text=text.txt", "--out_dir=new"])
    assert not Path("new").exists()


def test_shares_of_hidden_tokens_are_spread_evenly():
    sets = hidden_sets(np.arange(16) / 16, 17, np.random.default_rng(1))
    assert sets.sum(axis=1).tolist() == list(range(1, 17))
    assert not sets[:, 0].any()
