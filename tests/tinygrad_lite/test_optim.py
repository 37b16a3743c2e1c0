import functools
import math
import re
import sys
from contextlib import nullcontext

import numpy as np
import pytest

from tests.places import here
from tinygrad_lite import Tensor
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.nn import Embedding, Linear, Module, Parameter
from tinygrad_lite.optim import SGD, Adam, AdamW, Muon, decay_groups, muon_groups
from tinygrad_lite.optim.muon import (
    ELEMENT,
    ROUNDS,
    elements_of_work,
    muon_composed,
    newton_schulz_composed,
    newton_schulz_fused,
)
from tinygrad_lite.optim.schedules import constant, cosine, inverse_square_root, trapezoid
from tinygrad_lite.random import random_key

pytestmark = pytest.mark.every_device

rng = np.random.default_rng(7)
ADAMW = sys.modules["tinygrad_lite.optim.adamw"]  # the module; optim.adamw is the update


class Net(Module):
    """Two matrices and two vectors."""

    def __init__(self, dtype="float64"):
        super().__init__()
        with random_key(3):
            self.layers = [Linear(3, 4), Linear(4, 2)]
        self.to(here(), dtype)

    def forward(self, x):
        return self.layers[1](self.layers[0](x).tanh())


def muon(params, **options):
    """Muon for the matrices among named parameters, or in groups of them, and AdamW for the others."""
    params = list(params)
    groups = params if isinstance(params[0], dict) else [{"params": params}]
    parts = [
        group | {"params": [(n, p) for n, p in group["params"] if (p.ndim == 2) is use_muon], "use_muon": use_muon}
        for group in groups
        for use_muon in (True, False)
    ]
    return Muon(parts, **options)


KINDS = [SGD, Adam, AdamW, muon]


def copies(net):
    return {name: parameter.numpy().copy() for name, parameter in net.named_parameters()}


def random_gradients(net, count):
    return [{name: rng.standard_normal(p.shape) for name, p in net.named_parameters()} for _ in range(count)]


def follow(net, optimizer, gradients):
    """Let the optimizer make one update for each set of gradients, and return the parameters."""
    for step in gradients:
        optimizer.zero_grad()
        for name, parameter in net.named_parameters():
            parameter.grad = Tensor(step[name], dtype=parameter.dtype, device=here())
        optimizer.step()
    return copies(net)


def backward(net, seed=0):
    """Leave gradients in the parameters; return the loss."""
    x = Tensor(np.random.default_rng(seed).standard_normal((5, 3)), dtype=net.layers[0].weight.dtype)
    loss = (net(x) ** 2).sum()
    loss.backward()
    return loss.item()


def nothing(net, optimizer):
    """Change nothing between backward pass and update."""


def trained(change=nothing, kind=AdamW, steps=4, groups=lambda net: decay_groups(net, 0.2), zero=SGD.zero_grad):
    """The parameters after some steps; `change(net, optimizer)` is called between backward pass and update."""
    net = Net()
    optimizer = kind(groups(net), lr=0.05)
    for step in range(steps):
        zero(optimizer)
        backward(net, step)
        change(net, optimizer)
        optimizer.step()
    return copies(net)


def warns_of(names, now=True):
    """Inside, a warning names these parameters; with now=False there is none, since warnings are errors here."""
    message = f"^no gradient has reached {re.escape(names)}: not updated in this step$"
    return pytest.warns(UserWarning, match=message) if now else nullcontext()


# --- an update applies whatever is in .grad ---------------------------------------------------------------------


def forget(optimizer):
    """The idiom `for p in model.parameters(): p.grad = None` in place of zero_grad()."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def check(net, optimizer):
    gradcheck(lambda w: net(Tensor(np.ones((2, 3)), device=here())), [net.layers[0].weight])


def scale(net, optimizer):
    for p in net.parameters():
        p.grad = p.grad * 0.1


def scale_in_place(net, optimizer):
    for p in net.parameters():
        p.grad *= 0.5
        p.grad[...] = p.grad * 0.2


WAYS = [  # to pass all parameters
    lambda net: net.named_parameters(),
    lambda net: (p for p in net.parameters()),
    lambda net: [{"params": net.layers[0].parameters()}, {"params": net.layers[1].parameters(), "lr": 0.05}],
]
ALIKE = [  # two ways to train
    *(({"kind": kind, "zero": forget}, {"kind": kind}) for kind in KINDS),
    *(({"groups": way}, {"groups": Net.parameters}) for way in WAYS),
    ({"change": check}, {}),
    ({"change": scale_in_place, "kind": SGD}, {"change": scale, "kind": SGD}),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_what_means_the_same_makes_the_same_updates(one, other):
    np.testing.assert_equal(trained(**one), trained(**other))


@pytest.mark.parametrize("make", [lambda g: g.T.clone().T, lambda g: g[:1, :1].expand(2, 2), lambda g: g[::-1, ::-1]])
def test_clipping_and_summing_reach_gradients_of_any_layout(make):
    """Transposed, stretched or reversed: what is assigned to `.grad` need not be one stretch of memory."""
    w = Parameter(np.ones((2, 2)))
    optimizer = SGD([w], lr=0.5)
    w.grad = make(Tensor([[3.0, 1.0], [2.0, 5.0]], dtype="float64"))
    before = w.grad.numpy().copy()
    assert optimizer.clip_grad_norm(1.0) == pytest.approx(np.linalg.norm(before))
    np.testing.assert_allclose(w.grad.numpy(), before / np.linalg.norm(before))
    w.grad = make(Tensor([[3.0, 1.0], [2.0, 5.0]], dtype="float64"))
    (w * 2).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), before + 2)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"nesterov": True}])
def test_without_momentum_an_infinite_gradient_is_forgotten(bad, options):
    w = Parameter([1.0, 2.0])
    optimizer = SGD([w], lr=0.5, **options)
    for gradient in ([bad, 1.0], [1.0, 1.0]):
        w.data[:] = 1.0
        w.grad = Tensor(gradient)
        optimizer.step()
    assert w.tolist() == pytest.approx([0.5 - 0.5 * options.get("weight_decay", 0)] * 2)


@pytest.mark.parametrize(
    ("gradient", "clipped"), [([math.nan, 1.0], [math.nan] * 2), ([-math.inf, 1.0], [math.nan, 0.0])]
)
def test_clipping_what_is_not_finite_is_torchs(gradient, clipped):
    w = Parameter([1.0, 2.0])
    w.grad = Tensor(gradient)
    optimizer = SGD([w])
    norm = optimizer.clip_grad_norm(0)
    assert w.grad.tolist() == pytest.approx(gradient, nan_ok=True)
    assert not math.isfinite(optimizer.clip_grad_norm(1.0) + norm)
    assert w.grad.tolist() == pytest.approx(clipped, nan_ok=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_parameter_without_a_gradient_is_not_updated(kind):
    """It neither moves nor decays, and later continues as if these steps had not been made."""
    (net, other, resumed), settings = (Net() for _ in range(3)), {"lr": 0.05, "weight_decay": 0.5}
    optimizer, restored = (kind(one.named_parameters(), **settings) for one in (net, resumed))
    alone = kind([("w", other.layers[0].weight)], **settings)
    before = copies(net)
    for step in range(3):
        optimizer.zero_grad()
        backward(net, step)
        net.layers[0].weight.grad = net.layers[0].bias.grad = None
        with warns_of("layers.0.weight, layers.0.bias", now=step == 0):
            optimizer.step()
    after = copies(net)
    unmoved = [name for name in before if (before[name] == after[name]).all()]
    assert unmoved == ["layers.0.weight", "layers.0.bias"]
    resumed.load_state_dict(after)
    restored.load_state_dict(optimizer.state_dict(), optimizer.steps)
    restored._warned.update(restored.memory.places)
    weights = [one.layers[0].weight for one in (net, other, resumed)]
    for step in range(2):
        for w, its in zip(weights, (optimizer, alone, restored), strict=True):
            w.grad = w.full_like(0.5 + step)
            its.step()
    assert weights[0].tolist() == weights[1].tolist() == weights[2].tolist()


def test_zero_grad_sets_gradients_to_none():
    net = Net()
    optimizer = AdamW(net.parameters())
    for zero_grad in (optimizer.zero_grad, net.zero_grad):
        backward(net)
        zero_grad(set_to_none=False)
        assert not any(p.grad.numpy().any() for p in net.parameters())
        net.layers[0].bias.grad = None
        zero_grad(False)
        assert net.layers[0].bias.grad is None
        zero_grad()
        assert [p.grad for p in net.parameters()] == [None] * 4


def test_the_first_group_may_have_a_single_number():
    one, three = Parameter(np.ones(1)), Parameter(np.ones(3))
    optimizer = SGD([{"params": [one]}, {"params": [three], "lr": 0.5}], lr=1.0)
    (one.sum() + three.sum()).backward()
    optimizer.step()
    assert (one.tolist(), three.tolist()) == ([0.0], [0.5] * 3)


def test_a_gradient_set_by_hand_does_not_reach_the_next_parameter():
    one, three = Parameter(np.ones(1)), Parameter(np.ones(3))
    optimizer = SGD([one, three], lr=1.0)
    (one.sum() + three.sum()).backward()
    one.grad = Tensor([4.0], dtype=one.dtype)
    optimizer.step()
    assert (one.tolist(), three.tolist()) == ([-3.0], [0.0] * 3)


@pytest.mark.parametrize("rank", [0, 1])
def test_each_of_two_processes_updates_its_half(rank):
    four, eight = Parameter(np.ones(4)), Parameter(np.ones(8))
    optimizer = SGD([{"params": [four]}, {"params": [eight], "lr": 2.0}], lr=1.0)
    shared = four.xp.zeros((3, 12))  # values, gradients, moments
    optimizer.move_into(*shared[:2], shared[2:], contents=True)
    optimizer.memory.part = optimizer.slice_of(rank, 2)
    (four.sum() + eight.sum()).backward()
    optimizer.step()
    updated = [0.0] * 4 + [-1.0] * 8
    assert four.tolist() + eight.tolist() == (updated[:6] + [1.0] * 6 if rank == 0 else [1.0] * 6 + updated[6:])
    assert shared[:2].tolist() == [four.tolist() + eight.tolist(), [1.0] * 12]


def test_a_parameter_that_is_reached_later_has_its_own_count_of_updates():
    one, late = Parameter([1.0]), Parameter([1.0])
    optimizer = AdamW([one, late], lr=0.1)
    for loss in (one.sum, lambda: one.sum() + late.sum()):
        loss().backward()
        with warns_of("1", now=late.grad is None):
            optimizer.step()
    assert late.item() == pytest.approx(1 - 0.1 * (1 + 0.01))  # its first


def test_gradients_that_the_user_keeps_do_not_change():
    """Although every backward pass writes into the optimizer's memory."""
    net = Net()
    optimizer = AdamW(net.parameters())
    kept = []
    for step in range(3):
        optimizer.zero_grad()
        backward(net, step)
        gradient = net.layers[0].weight.grad
        kept += [(now, gradient.numpy().ravel().copy()) for now in (gradient, gradient.reshape(-1), gradient.detach())]
        optimizer.step()
        for now, then in kept:
            np.testing.assert_array_equal(now.numpy().ravel(), then)


def test_a_model_that_is_moved_stays_connected_to_its_optimizer():
    def there_and_back(net, optimizer):
        net.to(here(), "float32")
        net.to(here(), "float64")

    exact, moved = trained(), trained(there_and_back)
    for name, array in exact.items():
        np.testing.assert_allclose(moved[name], array, rtol=1e-5, atol=1e-6)
    net = Net()
    optimizer = SGD(net.parameters(), lr=0.05)
    net.to(here(), "float32")
    backward(net)
    assert {x.dtype.name for p in net.parameters() for x in (p.grad, optimizer.memory.values)} == {"float32"}


def test_a_gradient_that_does_not_fit_is_refused():
    v, w = Parameter([1.0]), Parameter([1.0, 2.0])
    optimizer = SGD([{"params": [v]}, {"params": [w]}], lr=0.5)
    v.grad, w.grad = Tensor([1.0]), Tensor([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"the gradient of 1 is \(\(3,\), 'float32', .* the parameter is \(\(2,\),"):
        optimizer.step()
    w.grad = np.ones(2)
    with pytest.raises(TypeError, match="the gradient of 1 is a ndarray: make it a Tensor"):
        optimizer.step()
    assert (v.tolist(), optimizer.steps) == ([1.0], 0)  # nothing was changed
    with pytest.raises(TypeError, match="was set to a ndarray: make it a Tensor, or None"):
        (w * 2).sum().backward()


# --- frozen parameters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_parameters_do_not_move(kind):
    for when in ("before", "after"):
        net = Net()
        if when == "before":
            net.layers[0].weight.requires_grad = False
        optimizer = kind(net.named_parameters(), lr=0.05, weight_decay=0.5)
        backward(net)
        net.layers[0].weight.requires_grad = False
        before = copies(net)
        optimizer.step()
        after = copies(net)
        assert [name for name in before if (before[name] == after[name]).all()] == ["layers.0.weight"]
        owned = [name for name in optimizer.state_dict() if name.endswith("layers.0.weight")]
        assert bool(owned) == (when == "after")
        net.layers[0].weight.requires_grad = True  # trained from here on, with moments
        backward(net)
        optimizer.step()
        assert (net.layers[0].weight.numpy() != before["layers.0.weight"]).all()
        assert any(name.endswith("layers.0.weight") for name in optimizer.state_dict())


# --- what may be passed ----------------------------------------------------------------------------------------


def test_groups_have_their_own_options():
    made = [kind([Parameter(np.ones((2, 2)))]) for kind in (SGD, Adam, AdamW, Muon)]
    rates = [(optimizer.lr, optimizer.param_groups[0]["weight_decay"]) for optimizer in made]
    assert rates == [(1e-3, 0.0), (1e-3, 0.0), (1e-3, 0.01), (1e-3, 0.1)]
    w, b = Parameter([1.0]), Parameter([1.0])
    optimizer = SGD([{"params": [w], "lr": 0.0}, {"params": [b], "weight_decay": 1.0}], lr=0.5)
    w.grad = b.grad = Tensor([0.0])
    optimizer.step()
    assert (w.item(), b.item()) == (1.0, 0.5)
    optimizer.lr = 0.25  # may be changed at any time
    optimizer.step()
    assert (w.item(), b.item()) == (1.0, 0.375)


def test_anything_else_is_refused_in_one_sentence():
    net, takes = Net(), r"pass model\.parameters\(\), model\.named_parameters\(\), or a list of groups"
    weight, frozen = net.layers[0].weight, Parameter([1.0], requires_grad=False)
    mixed = [("a", Parameter([1.0])), ("b", Parameter(np.ones(2)))]
    for error, given, message in (
        (TypeError, net.parameters, rf"^optimizer: {takes} .*, not a method$"),
        (TypeError, dict(net.named_parameters()), rf"^optimizer: {takes} .*, not a dict$"),
        (TypeError, [1.0, 2.0], takes + r".* is not a parameter$"),
        (TypeError, [{"params": [weight], "lrr": 1}], "no option 'lrr': it may have lr, betas, eps, weight_decay$"),
        (TypeError, [{"weights": [weight]}], "a group is a dict with 'params', not"),
        (ValueError, [weight, weight], "parameter 1 was given twice"),
        (ValueError, [weight * 2], "0 is the result of 'mul'; only leaves can be learned"),
        (ValueError, [], "optimizer: there are no parameters"),
        (ValueError, [frozen], "there are no parameters that require a gradient"),
        (ValueError, mixed, f"parameter b is float64 on {here()}, others are float32 on {here()}"),
    ):
        with pytest.raises(error, match=message):
            AdamW(given)


# --- updates against plain formulas, one parameter at a time --------------------------------------------------


def plain_sgd(w, gradients, decay, lr, momentum, nesterov=False):
    velocity = 0.0
    for g in gradients:
        g = g + decay * w
        velocity = momentum * velocity + g
        w = w - lr * (g + momentum * velocity if nesterov else velocity)
    return w


def plain_adam(w, gradients, decay, lr, betas=(0.9, 0.999), eps=1e-8, decoupled=True):
    """Kingma, Ba 2015, algorithm 1; decoupled: Loshchilov, Hutter 2019, algorithm 2, with lr on the decay."""
    m = v = np.zeros_like(w)
    for t, g in enumerate(gradients, start=1):
        if not decoupled:
            g = g + decay * w
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        pull = decay * w if decoupled else 0.0
        w = w - lr * (m / (1 - betas[0] ** t) / (np.sqrt(v / (1 - betas[1] ** t)) + eps) + pull)
    return w


SETTINGS = {
    SGD: [{"lr": 0.1, "momentum": momentum} for momentum in (0.0, 0.9)]
    + [{"lr": 0.1, "momentum": 0.5, "nesterov": True}],
    Adam: [{"lr": 0.05, "betas": betas, "eps": 1e-3} for betas in ((0.9, 0.99), (0.0, 0.0))],
}
SETTINGS[AdamW] = SETTINGS[Adam]


@pytest.mark.parametrize(("kind", "options"), [(kind, options) for kind in SETTINGS for options in SETTINGS[kind]])
def test_updates_follow_their_formulas(kind, options):
    net = Net()
    start, gradients = copies(net), random_gradients(net, 8)
    after = follow(net, kind(decay_groups(net, 0.2), **options), gradients)
    plain = plain_sgd if kind is SGD else functools.partial(plain_adam, decoupled=kind is AdamW)
    # With betas of 0, the fused v + (g^2 - v) loses digits where g^2 is far below the v of the step before.
    tolerance = {"rtol": 1e-12, "atol": 1e-14} if kind is SGD else {"rtol": 1e-11, "atol": 1e-11}
    for name, w in start.items():
        expected = plain(w, [g[name] for g in gradients], 0.2 if w.ndim == 2 else 0.0, **options)
        np.testing.assert_allclose(after[name], expected, **tolerance)


# --- Muon -----------------------------------------------------------------------------------------------------


def orthogonalized(matrix):
    """U f3(f2(f1(S))) V^T, computed with the singular values themselves."""
    u, s, vt = np.linalg.svd(matrix / max(np.linalg.norm(matrix), 1e-7), full_matrices=False)
    for a, b, c in ROUNDS:
        s = a * s + b * s**3 + c * s**5
    return u * s @ vt


def plain_muon(w, gradients, lr, momentum, decay, scale):
    mean = np.zeros_like(w)
    for g in gradients:
        mean = momentum * mean + (1 - momentum) * g
        w = w - lr * (scale * orthogonalized(momentum * mean + (1 - momentum) * g) + decay * w)
    return w


LIKE_ADAMW = {"adjust_lr_fn": "match_rms_adamw", "momentum": 0.8, "muon_lr_factor": 3.0}


@pytest.mark.parametrize(("options", "tall", "wide"), [({}, math.sqrt(4 / 3), 1.0), (LIKE_ADAMW, 0.4, 0.4)])
def test_muon_follows_its_formula(options, tall, wide):
    """Compared with the singular values; vectors have AdamW's update and learning rate."""
    net = Net()
    start, gradients = copies(net), random_gradients(net, 6)
    gradients[0]["layers.1.weight"] = np.zeros((2, 4))
    after = follow(net, muon(decay_groups(net, 0.2), lr=0.05, **options), gradients)
    lr, momentum = 0.05 * options.get("muon_lr_factor", 1), options.get("momentum", 0.95)
    for name, w in start.items():
        of_name = [g[name] for g in gradients]
        if w.ndim == 1:
            expected = plain_adam(w, of_name, 0.0, lr=0.05)
        else:
            expected = plain_muon(w, of_name, lr, momentum, 0.2, tall if w.shape == (4, 3) else wide)
        np.testing.assert_allclose(after[name], expected, rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("shape", [(3, 32, 32), (2, 16, 64), (2, 64, 16)])
def test_newton_schulz_brings_singular_values_near_1(shape):
    """Those above 0.01 of the norm to between 0.72 and 1.28, in the same directions; 0 stays 0."""
    u, _, vt = np.linalg.svd(rng.standard_normal(shape), full_matrices=False)
    singular_values = np.geomspace(1, 0.03, min(shape[1:]))
    assert singular_values[-1] > 0.01 * np.linalg.norm(singular_values)
    gradients = u * singular_values @ vt * 1e3
    stack = gradients.astype(np.float32)
    newton_schulz_fused(stack)
    composed_stack = newton_schulz_composed(Tensor(gradients, dtype=np.float32, device=here())).numpy()
    for found in (stack, composed_stack):
        s = u.swapaxes(1, 2) @ found @ vt.swapaxes(1, 2)
        diagonals = np.einsum("nii->ni", s)
        assert (diagonals > 0.72).all()
        assert (diagonals < 1.28).all()
        np.testing.assert_allclose(s, diagonals[:, None] * np.eye(s.shape[1]), atol=1e-3)
    np.testing.assert_allclose(stack, composed_stack, atol=1e-3)


def test_each_round_of_newton_schulz_is_a_minimax_polynomial():
    """Its error on the interval is reached four times, with alternating signs: no odd quintic has a smaller one."""
    low, high = 0.01, 1.0
    for a, b, c in ROUNDS:
        s = np.linspace(low, 1.01 * high, 100_001)
        error = a * s + b * s**3 + c * s**5 - 1
        largest = np.abs(error).max()
        signs = np.sign(error[np.abs(error) > largest * 0.99])
        assert signs[np.r_[True, signs[1:] != signs[:-1]]].tolist() == [-1, 1, -1, 1]
        low, high = 1 - largest, 1 + largest
    assert (low, high) == pytest.approx((0.721, 1.279), abs=5e-4)


def test_muon_groups_exclude_embeddings_and_the_output_matrix():
    """Muon gets the matrices in numbered layers, but not embeddings or the output matrix, tied or not."""
    net = Net()
    net.layers.append(Embedding(5, 2))
    net.table, net.lm_head = Embedding(5, 2), Linear(2, 5)
    net.lm_head.weight = net.table.weight
    names = [[name for name, _ in group["params"]] for group in muon_groups(net, 0.1)]
    assert names == [
        ["layers.0.weight", "layers.1.weight"],
        ["layers.2.weight", "table.weight"],
        ["layers.0.bias", "layers.1.bias", "lm_head.bias"],
    ]
    assert [group["weight_decay"] for group in muon_groups(net, 0.1)] == [0.1, 0.1, 0.0]


@pytest.mark.parametrize("size", [1, 5, 40])
def test_processes_share_muons_work_in_whole_matrices(size):
    assert elements_of_work(ELEMENT, ELEMENT) == 1 + 9 * 2  # nine products in three rounds
    assert elements_of_work(2 * ELEMENT, ELEMENT) == 1 + 13 * 2 / 2  # thirteen for twice as many elements
    net = Module()
    net.layers = [Linear(24, 24) for _ in range(12)] + [Linear(24, 96), Linear(96, 24)]
    net.table = Embedding(100, 24)
    optimizer = Muon(muon_groups(net, 0.1)[::-1])
    parts = [optimizer.slice_of(rank, size) for rank in range(size)]
    assert [0, *(part.stop for part in parts)] == [*(part.start for part in parts), net.num_parameters()]
    matrices = [optimizer.memory.places[name] for group in optimizer.param_groups[-3:] for name in group["param_names"]]
    cuts = [part.stop for part in parts]
    assert not [cut for cut in cuts for place in matrices if place.start < cut < place.stop]
    work = [0.0] * net.num_parameters()
    for place in matrices:
        work[place] = [elements_of_work(24, (place.stop - place.start) // 24)] * (place.stop - place.start)
    work = np.maximum(work, 1)
    largest = max(work[place].sum() for place in matrices)
    assert max(work[part].sum() for part in parts) <= work.sum() / size + largest


# --- one flat array -------------------------------------------------------------------------------------------


def test_gathered_gradients_include_one_set_by_hand_and_zeros_where_there_is_none():
    v, w = Parameter([1.0]), Parameter([1.0, 2.0])
    optimizer = SGD([v, w])
    w.grad = Tensor([3.0, 4.0])
    assert optimizer.gather_gradients().tolist() == [0.0, 3.0, 4.0]


def test_a_step_between_forward_and_backward_is_detected():
    net = Net()
    optimizer = SGD(net.named_parameters(), lr=0.1)
    net(Tensor.ones(5, 3, dtype=np.float64)).sum().backward()
    loss = net(Tensor.ones(5, 3, dtype=np.float64)).sum()
    optimizer.step()
    with pytest.raises(RuntimeError, match="overwritten in place"):
        loss.backward()


# --- clipping -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_are_clipped_by_their_global_norm(dtype):
    net = Net(dtype)
    optimizer = SGD(net.named_parameters(), lr=0.1)
    (gradients,) = random_gradients(net, 1)
    norm = math.sqrt(sum((g**2).sum() for g in gradients.values()))
    for max_norm, factor in ((norm / 4, 1 / 4), (norm * 2, 1), (0, 1)):
        for name, parameter in net.named_parameters():
            parameter.grad = Tensor(gradients[name], dtype=parameter.dtype, device=here())
        assert optimizer.clip_grad_norm(max_norm) == pytest.approx(norm, rel=1e-5)
        for name, parameter in net.named_parameters():
            np.testing.assert_allclose(parameter.grad.numpy(), gradients[name] * factor, rtol=1e-5)


# --- state ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_optimizer_continues_bit_for_bit(kind):
    """Its state says after how many steps, unless the caller does."""
    options = {"momentum": 0.9} if kind is SGD else {}

    def make():
        net = Net("float32")
        return net, kind(decay_groups(net, 0.1), lr=0.01, **options)

    net, optimizer = make()
    gradients = random_gradients(net, 7)
    follow(net, optimizer, gradients[:4])
    weights = copies(net)
    state = {name: array.copy() for name, array in optimizer.state_dict().items()}
    uninterrupted = follow(net, optimizer, gradients[4:])
    unsaid = {name: array for name, array in state.items() if name != "step"}
    with pytest.raises(ValueError, match=r"the optimizer's state has no 'step', .*: pass it as steps="):
        optimizer.load_state_dict(unsaid)
    for given in ((state,), (unsaid, 4)):
        other, restored = make()
        other.load_state_dict(weights)
        restored.load_state_dict(*given)
        np.testing.assert_equal(follow(other, restored, gradients[4:]), uninterrupted)
        assert restored.steps == optimizer.steps == 7
        np.testing.assert_equal(restored.state_dict(), optimizer.state_dict())
    assert "step" in state  # what was given is as it was


@pytest.mark.parametrize("kind", [AdamW, muon])
def test_the_state_has_the_names_and_shapes_of_the_parameters(kind):
    """Muon keeps one number for each element of a matrix, two for those of vectors."""
    net = Net()
    shapes = {f"exp_avg.{name}": p.shape for name, p in net.named_parameters()}
    shapes |= {f"exp_avg_sq.{n}": p.shape for n, p in net.named_parameters() if p.ndim == 1 or kind is AdamW}
    state = kind(decay_groups(net, 0.1), lr=0.1).state_dict()
    assert {name: array.shape for name, array in state.items()} == shapes | {"step": ()}


def test_a_state_that_does_not_fit_is_refused():
    net = Net()
    optimizer = AdamW(net.named_parameters(), lr=0.1)
    state = {name: array + 1 for name, array in optimizer.state_dict().items()}
    misfits = {"exp_avg.layers.0.bias": None, "momentum": np.zeros(2), "exp_avg_sq.layers.1.bias": np.zeros(3)}
    misfits |= {"skipped.layers.0.bias": np.ones(2), "skipped.layers.7.bias": np.array(1.0)}
    for name, wrong in misfits.items():
        changed = {key: array for key, array in (state | {name: wrong}).items() if array is not None}
        with pytest.raises(ValueError, match=f"does not fit: {re.escape(name)}$"):
            optimizer.load_state_dict(changed, 3)
    assert optimizer.steps == 0
    assert not any(array.any() for array in optimizer.state_dict().values())


# --- learning rate over time ----------------------------------------------------------------------------------


RATES = [  # a schedule, its settings, and its rates at some steps
    (constant, (0.3,), {0: 0.3, 1000: 0.3}),
    (constant, (1.0, 3), {0: 0.25, 1: 0.5, 2: 0.75, 3: 1.0, 4: 1.0}),
    (cosine, (1e-3, 5, 5, 1e-4), {5: 1e-4}),  # without time to fall
    (cosine, (1e-3, 100, 2000, 1e-4), {2000: 1e-4, 2499: 1e-4}),
    (inverse_square_root, (0.5, 0), {0: 0.5}),
    (trapezoid, (1.0, 100, 2000, 0.1), {0: 1 / 101, 100: 1.0, 800: 1.0, 1100: 0.775, 2000: 0.1, 5000: 0.1}),
    (trapezoid, (1.0, 0, 400, 0.0, 0.5), {0: 1.0, 200: 1.0, 300: 0.5, 400: 0.0}),
    (trapezoid, (1.0, 1000, 2000, 0.0, 0.01), {1000: 1.0, 1500: 0.5}),  # falls after the rise
    (trapezoid, (1.0, 10, 10, 0.0), {9: 10 / 11, 10: 0.0}),  # without time to fall
    (trapezoid, (1.0, 0, 10, 0.1, 1.0), {9: 1.0, 10: 0.1}),
]


@pytest.mark.parametrize(("schedule", "settings", "rates"), RATES)
def test_the_rates_of_schedules_at_their_ends(schedule, settings, rates):
    assert {step: schedule(step, *settings) for step in rates} == pytest.approx(rates, rel=1e-15)


def test_cosine_warms_up_and_falls():
    steps = np.arange(2001)
    falling = 1e-4 + (1e-3 - 1e-4) * np.cos(math.pi * (steps - 100) / 1900 / 2) ** 2
    expected = np.where(steps < 100, 1e-3 * (steps + 1) / 101, falling)
    np.testing.assert_allclose([cosine(step, 1e-3, 100, 2000, 1e-4) for step in steps], expected, rtol=1e-9)


def test_inverse_square_root_is_the_formula_of_the_2017_paper():
    """lrate = d_model^-0.5 * min(step_num^-0.5, step_num * warmup_steps^-1.5), step_num counted from 1 (eq. 3)."""
    d_model, warmup = 512, 400
    peak = (d_model * warmup) ** -0.5
    rates = [inverse_square_root(step, peak, warmup) for step in range(3000)]
    for step_num in (1, 2, 399, 400, 401, 2999):
        paper = d_model**-0.5 * min(step_num**-0.5, step_num * warmup**-1.5)
        assert rates[step_num - 1] == pytest.approx(paper, rel=1e-12)
    assert int(np.argmax(rates)) == warmup - 1


# --- threads ------------------------------------------------------------------------------------------------------


@pytest.mark.cpu_only("the CPU's threads")
def test_several_threads_compute_the_same_bits(monkeypatch):
    rng = np.random.default_rng(0)
    arrays = rng.random((4, 10_001), np.float32)

    def updated(threads):
        monkeypatch.setattr(ADAMW, "blas_threads", lambda: threads)
        w, g, m, v = (Tensor(array.copy()) for array in arrays)
        ADAMW.adamw_fused(w, g, m, v, 3, 0.01, 0.9, 0.99, 1e-8, 0.1)
        return np.stack([x.numpy() for x in (w, m, v)])

    monkeypatch.setattr(ADAMW, "PER_THREAD", 3000)
    whole = updated(1)
    assert (whole != arrays[[0, 2, 3]]).all()
    np.testing.assert_equal([updated(threads) for threads in (2, 3, 8)], [whole] * 3)


def test_work_in_threads_is_done_once_and_its_error_is_raised(monkeypatch):
    monkeypatch.setattr(ADAMW, "PER_THREAD", 10)
    monkeypatch.setattr(ADAMW, "blas_threads", lambda: 3)
    done, settings = np.zeros(40), set()

    def work(first, end):
        settings.add(np.geterr()["over"])
        done[first:end] += 1
        if end == 35:
            raise MemoryError

    with np.errstate(over="raise"), pytest.raises(MemoryError):
        ADAMW.in_threads(work, 35)
    assert done.tolist() == [1] * 35 + [0] * 5
    assert settings == {"raise"}


# --- a guard ------------------------------------------------------------------------------------------------------


GUARDED = [
    (ADAMW.adamw_composed, [(7,)] * 4, (4, 1e-2, 0.9, 0.99, 1e-8, 0.1)),
    (muon_composed, [(2, 3, 5)] * 3, (0.02, 0.95, 0.1, "original")),
]


@pytest.mark.parametrize(("rule", "shapes", "settings"), GUARDED)
def test_a_guard_scales_the_gradient_or_forbids_the_update(rule, shapes, settings):
    """See cuda/guard.py for its four numbers; here the reference versions read them."""
    arrays = [rng.random(shape) for shape in shapes]

    def updated(factor=1.0, numbers=None):
        tensors = [Tensor(array, device=here()) for array in arrays]
        tensors[1] = tensors[1] * factor
        rule(*tensors, *settings, guard=None if numbers is None else Tensor(numbers, device=here(), dtype="float64"))
        return [tensor.numpy() for i, tensor in enumerate(tensors) if i != 1]

    before = [array for i, array in enumerate(arrays) if i != 1]
    np.testing.assert_equal(updated(numbers=[0.25, -1, 1.5, 4]), updated(0.25))
    for first_broken_step in (0, 5):
        np.testing.assert_equal(updated(numbers=[1, first_broken_step, math.nan, 4]), before)
    assert any((one != other).any() for one, other in zip(updated(), before, strict=True))
