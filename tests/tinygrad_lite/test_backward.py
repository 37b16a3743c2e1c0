"""The graph and the walk back: order, depth, sharing, memory, and the mistakes that must be detected."""

import copy
import weakref
from contextlib import nullcontext

import numpy as np
import pytest

from tinygrad_lite import Tensor, no_grad
from tinygrad_lite import functional as F
from tinygrad_lite.autograd import Observer
from tinygrad_lite.debug.anomaly import detect_anomaly
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.tensor import node

pytestmark = pytest.mark.every_device


def leaf(values, dtype="float64"):
    return Tensor(values, dtype=dtype, requires_grad=True)


def custom(x, backward, name="custom", **options):
    """x doubled, by a node with the given backward function."""
    return node(x.data * 2, (x,), backward, name, **options)


# --- the walk ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("walked", [True, False])
def test_30000_operations_can_be_walked_back_and_dropped(walked):
    x = leaf(1.0)
    y = x
    for _ in range(30_000):
        y = -y
    if walked:
        y.backward()
        assert x.grad.item() == 1.0
    first = weakref.ref(y)
    del y  # destructors must not recurse 30,000 times either
    assert first() is None


def test_each_node_is_walked_once_however_many_paths_there_are():
    a = leaf(1.0)
    calls = []

    def backward(dy):
        calls.append(dy.item())
        return (dy * 2,)

    y = custom(a, backward)
    for _ in range(40):  # 2^40 paths
        y = y + y
    y.backward()
    assert calls == [2.0**40]
    assert a.grad.item() == 2.0**41


def adding(a, log):
    """3 a, whose derivative also does the addition to what has arrived at a."""

    def backward(dy, so_far):
        log.append(None if so_far is None else so_far.item())
        return (dy * 3 if so_far is None else dy * 3 + so_far,)

    return node(a.data * 3, (a,), backward, "adding", adds=True)


def test_a_derivative_may_do_the_next_addition():
    x, log = leaf(2.0), []
    h = (x * 1.0).retain_grad()
    early = h * 10.0  # older than the node that adds, so its gradient arrives later
    added = adding(h, log)
    late = h * 100.0
    (early + added + late).backward()
    assert log == [100.0]
    assert h.grad.item() == x.grad.item() == 113.0
    adding(x * 1.0, log).backward()  # where nothing has arrived
    adding(x, log).backward()  # a leaf's gradients are added where they are kept
    h = x * 1.0
    with detect_anomaly():  # beside an observer
        (adding(h, log) + h * 100.0).backward()
    assert log == [100.0, None, None, None]
    assert x.grad.item() == 113.0 + 3.0 + 3.0 + 103.0


def test_a_sum_from_a_derivative_is_not_added_to_in_place():
    """What it returns may be another node's gradient too."""
    x, shared = leaf([2.0]), []

    def backward(dy, so_far):
        shared.append(so_far + dy * 3)
        return (shared[0],)

    h = x * 1.0
    early = h * 10.0
    added = node(h.data * 3, (h,), backward, "adding", adds=True)
    (early + added + h * 100.0 + h * 100.0).backward()
    assert x.grad.tolist() == [213.0]
    assert shared[0].tolist() == [203.0]


def test_backward_takes_a_gradient_of_the_right_shape_and_dtype():
    x = leaf([1.0, 2.0])
    (x * x).backward(Tensor([1.0, 10.0], dtype="float64"))
    assert x.grad.tolist() == [2.0, 40.0]
    with pytest.raises(RuntimeError, match=r"gradient of shape \(3,\) and dtype float64 .* shape \(2,\)"):
        (x * x).backward(Tensor(np.ones(3)))
    with pytest.raises(RuntimeError, match=r"dtype float32 .* dtype float64"):
        (x * x).backward(Tensor([1.0, 1.0]))
    x.grad = Tensor([1.0, 1.0])
    with pytest.raises(RuntimeError, match=r"setting .grad.*dtype float32 .* dtype float64"):
        (x * x).sum().backward()


def test_backward_refuses_tensors_that_are_no_loss():
    with pytest.raises(RuntimeError, match="computed from nothing that requires a gradient"):
        (Tensor([1.0]) * 2).sum().backward()
    with pytest.raises(RuntimeError, match=r"a tensor of shape \(2,\) is not a scalar loss; sum it first"):
        (leaf([1.0, 2.0]) * 2).backward()
    with pytest.raises(RuntimeError, match="takes part in no gradient computation"):
        Tensor([1.0]).retain_grad()


# --- who gets a gradient ----------------------------------------------------------------------------------------


def test_gradients_of_several_graphs_add_up_in_place():
    x = leaf([1.0, 2.0])
    buffer = x.xp.array([10.0, 20.0])
    x.grad = Tensor.wrap(buffer)
    (x * 3).sum().backward()
    (x * x).sum().backward()
    assert buffer.tolist() == x.grad.tolist() == [15.0, 27.0]
    x.grad = None
    x.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


FUSED = {
    "linear": lambda x: F.linear(leaf([[1.0, 2.0]]), x),
    "embedding": lambda x: F.embedding(Tensor([1, 1]), x),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.reshape(1, 1, 2, 2)] * 3),
    "layer norm": lambda x: F.layer_norm(x, weight=x[0]),
    "conv2d": lambda x: F.conv.conv2d(x.reshape(1, 1, 2, 2), x.reshape(1, 1, 2, 2)),
}


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("stretched", [False, True])
def test_a_gradient_set_by_hand_counts_and_the_leaf_gets_its_own(name, stretched):
    found = []
    for by_hand in (0.0, 3.0):
        a = leaf([[1.0, 0.5], [2.0, -1.0]])
        x = (a * 2).retain_grad()
        if by_hand:
            x.grad = Tensor(by_hand, dtype="float64").expand(2, 2) if stretched else x.full_like(by_hand)
        FUSED[name](x).sum().backward()
        found.append((x.grad.numpy() - by_hand, a.grad.numpy()))
    np.testing.assert_allclose(found[1], found[0], atol=1e-12)
    assert found[0][1].any()


@pytest.mark.cpu_only("CuPy has no flag for what can be written")
def test_gradients_share_no_memory():
    x, y, start = leaf([1.0, 2.0]), leaf([3.0, 4.0]), Tensor([1.0, 1.0], dtype="float64")
    z = (x + y).retain_grad()
    z.backward(start)
    arrays = [x.grad.data, y.grad.data, z.grad.data, start.data]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
    assert all(a.flags.writeable for a in arrays)
    wide = leaf([[1.0]])
    wide.expand(2, 2).sum().backward()
    wide.grad[0, 0] = 9.0  # not one of NumPy's read-only stretched views
    assert wide.grad.tolist() == [[9.0]]


def test_no_grad_records_no_graph():
    """It may be nested, in itself too, and decorate a function that calls itself."""
    x, inside = leaf([2.0]), no_grad()
    with inside:
        y = x * x
        with inside, no_grad():
            pass
        z = x * y
    assert not y.requires_grad
    assert not z.requires_grad
    assert (x * x).requires_grad

    @no_grad()
    def twice(depth):
        return twice(depth - 1) if depth else x * 2

    assert not twice(2).requires_grad
    with pytest.raises(KeyError), no_grad():
        raise KeyError
    assert (x * y).requires_grad  # and after an error too


def test_detach_cuts_the_graph():
    x = leaf([2.0])
    y = x * x
    still = y.detach()
    assert still.data is y.data
    assert not still.requires_grad
    (y * still).backward()  # d(x^2 * 4)/dx
    assert x.grad.item() == 16.0


def test_integers_and_truth_values_have_no_gradient():
    x = leaf([1.0, -2.0])
    for y in (x > 0, x == x, x.cast("int64"), x.argmax(), x.cast(bool)):
        assert not y.requires_grad
    ((x > 0) * x).sum().backward()
    assert x.grad.tolist() == [1.0, 0.0]


# --- freed graphs------------------------------------------------------------------------------------------------


def test_a_second_backward_over_a_freed_graph_is_refused_and_changes_nothing():
    x, other = leaf([1.0]), leaf([5.0])
    shared = x * x
    first, second = (shared * 2).sum(), (shared * other + x).sum()
    first.backward()
    for loss, op in ((first, "sum"), (second, "mul"), ((shared * 3).sum(), "mul")):
        with pytest.raises(RuntimeError, match=f"the graph behind '{op}' was freed by an earlier backward.*add the l"):
            loss.backward()
        assert (x.grad.item(), other.grad) == (4.0, None)


def test_a_wrong_derivative_fails_where_it_is_made():
    x = leaf([1.0, 2.0])
    wrong = {
        r"backward of 'custom' gave a gradient of shape \(1,\).* shape \(2,\)": lambda dy: (dy[:1],),
        r"backward of 'custom' gave .* dtype float32 .* dtype float64": lambda dy: (dy.astype(np.float32),),
        "the derivative of 'custom' did not return a tuple with a gradient": lambda dy: dy,
        "the derivative of 'custom' did not return a tuple .* each of its 1 inputs": lambda dy: (dy, dy),
    }
    for message, backward in wrong.items():
        for parent in (x, x * 1.0):
            with pytest.raises(RuntimeError, match=message):
                custom(parent, backward).sum().backward()
    assert x.grad is None


def test_the_first_tensors_of_a_process_get_their_gradients():
    """Ages count from 0."""
    x = leaf([3.0])
    y = x * x
    x._node.age, y._node.age = 0, 1
    (y * 1.0).backward()
    assert x.grad.item() == 6.0


class Recorder(Observer):
    """Notes what an observer is told about the walk."""

    def __enter__(self):
        self.told = []
        return super().__enter__()

    def before_backward(self, node):
        self.told.append(node.op)

    def after_backward(self, node, dy, gradients):
        self.told.append((dy.tolist(), [dx.tolist() for dx in gradients]))


def test_an_observer_is_told_of_every_derivative_with_whole_gradients():
    x = leaf([1.0, 2.0])
    with Recorder() as observer:
        (x[1] * Tensor(5.0, dtype="float64")).backward()
        custom(x[0] * 1.0, lambda dy: (None,)).backward()
    assert observer.told == ["mul", (1.0, [5.0]), "getitem", (5.0, [[0.0, 5.0]]), "custom", (1.0, [])]
    w = leaf([[1.0, 2.0]])
    w.grad = w.zeros_like()  # which is then not added to unseen
    with Recorder() as observer:
        F.linear(leaf([[3.0, 4.0]]), w).backward()
    assert observer.told == ["linear", ([[1.0]], [[[1.0, 2.0]], [[3.0, 4.0]]])]
    gradcheck(lambda x: F.linear(x, w), [leaf([[5.0, 6.0]])])  # nor changed
    assert w.grad.tolist() == [[3.0, 4.0]]


# --- memory -----------------------------------------------------------------------------------------------------


def test_saved_arrays_are_freed_during_the_backward_pass():
    alive = []

    def backward(dy):
        alive.append([ref() is not None for ref in arrays])
        return (dy * 2,)

    x = leaf(np.ones(4))
    arrays = []
    y = custom(x, backward)
    for _ in range(5):
        y = y.exp()
        arrays.append(weakref.ref(y.data))
        y = y * 0.1
    loss = y.sum()
    del y
    assert all(ref() is not None for ref in arrays)
    loss.backward()  # the loss itself is still held
    assert alive == [[False] * 5]
    assert loss._node.parents == ()


def test_only_what_a_derivative_needs_is_kept():
    """exp keeps its result; + and sum keep nothing, although their nodes are part of the graph."""
    x, factor = leaf(np.ones(4)), leaf(np.ones(4))
    # A product keeps a factor only if the other one is learned.
    steps = [lambda x: x + 1, lambda x: x * factor, lambda x: x * 2, lambda x: x + 1, lambda x: x.exp()]
    h, arrays = x, []
    for step in steps:
        h = step(h)
        arrays.append(weakref.ref(h.data))
    total = h.sum()
    del h
    assert [ref() is not None for ref in arrays] == [True, False, False, False, True]
    total.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(5.0))


def test_copies_of_leaves_have_their_own_gradients():
    x = leaf([1.0, 2.0])
    (x * x).sum().backward()
    copied = copy.deepcopy(x)
    assert (copied.tolist(), copied.grad.tolist(), copied.requires_grad) == ([1.0, 2.0], [2.0, 4.0], True)
    assert copied.version == 0
    copied.sum().backward()
    assert (copied.grad.tolist(), x.grad.tolist()) == ([3.0, 5.0], [2.0, 4.0])
    with pytest.raises(RuntimeError, match="the result of 'mul' cannot be copied or pickled: use"):
        copy.deepcopy(x * x)


# --- values that are overwritten --------------------------------------------------------------------------------

OVERWRITTEN = "backward: a value that '{}' still needs was overwritten in place after it was used"


WRITES = [
    lambda x: x.__setitem__(0, 9.0),
    lambda x: x.detach().__setitem__(0, 9.0),
    lambda x: x[1:].__setitem__(0, 9.0),
    lambda x: x[0].__setitem__((), 9.0),
    lambda x: x.reshape(2, 1).T[0].__setitem__(slice(None), 9.0),
    lambda x: x.mark_written(),
    lambda x: x.__iadd__(1),
]


@pytest.mark.parametrize("write", WRITES, ids="itself,detached,slice,number,views of views,optimizer,+=".split(","))
@pytest.mark.parametrize("through", ["itself", "a view"])
@pytest.mark.parametrize("requires_grad", [True, False])
def test_writing_a_value_that_is_still_needed_is_detected(write, through, requires_grad):
    x, w = leaf([1.0, 2.0]).requires_grad_(requires_grad), leaf([3.0, 4.0])
    y = w * (x if through == "itself" else x.reshape(2, 1).T[0])
    with no_grad() if requires_grad else nullcontext():
        write(x)
    with pytest.raises(RuntimeError) as caught:
        y.sum().backward()
    assert str(caught.value) == OVERWRITTEN.format("mul")
    assert x.grad is w.grad is None


def test_a_leaf_is_written_in_place_under_no_grad():
    """The idiom `for p in parameters: with no_grad(): p -= 0.1 * p.grad`."""
    w = Tensor([1.0, 2.0], requires_grad=True)
    array = w.data
    (w * w).sum().backward()
    with no_grad():
        w -= 0.25 * w.grad
        w *= 4
        w += 2
        w /= 2
    assert (w.tolist(), w.data is array, w.requires_grad) == ([2.0, 3.0], True, True)
