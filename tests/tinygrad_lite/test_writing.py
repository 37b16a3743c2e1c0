"""Writing in place: each cell of the table in docs/engine.md, and what a write does to names, views and gradients."""

import re
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from tests.tinygrad_lite.functional import version_cases
from tests.tinygrad_lite.op_cases import CASES, each_of
from tinygrad_lite import Tensor, no_grad, recompute
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.functional.registry import REGISTRY
from tinygrad_lite.random import random_key

PAGE = Path(__file__).parents[2] / "docs" / "engine.md"
ROWS = ("leaf", "constant", "gradient", "view of a constant", "second name", "result", "view of a result")
WRITES = ("x += y", "x[i] = y", "x.data[i] = a")


def made(kind: str):
    """A tensor [1, 2] of this kind, and what else must see a write into it."""
    leaf = Tensor([0.5, 1.0], requires_grad=True)
    if kind == "leaf":
        return leaf, leaf
    if kind == "constant":
        x = Tensor([1.0, 2.0])
        return x, x
    if kind == "gradient":
        (leaf * Tensor([1.0, 2.0])).sum().backward()
        return leaf.grad, leaf.grad
    if kind == "view of a constant":
        whole = Tensor([0.0, 1.0, 2.0])
        return whole[1:], whole
    result = leaf * 2
    return (result[:] if kind == "view of a result" else result), result


def write(x, how: str):
    if how == "x += y":
        x += 1
    elif how == "x[i] = y":
        x[0] = 5
    else:
        x.data[0] = 5
    return x


def outcome(kind: str, how: str, outside: bool) -> str:
    """What happens, as the page says it: "written", "refused" or "not counted"."""
    x, other = made(kind)
    before, count = x.tolist(), x.version
    try:
        if outside:
            after = write(x, how)
        else:
            with no_grad():
                after = write(x, how)
    except RuntimeError as error:
        return "refused" if x.tolist() == before and how in str(error) else str(error)
    assert after is x
    expected = [before[0] + 1, before[1] + 1] if how == "x += y" else [5.0, before[1]]
    assert x.tolist() == expected
    assert other.tolist()[-2:] == expected
    return "written" if x.version == count + 1 else "not counted"


def cells():
    """The table of the page: a row, a column, and the words in the cell."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    start = next(number for number, row in enumerate(table) if row[0] == "x is a")
    return table[start + 2 : start + 2 + len(ROWS)]


@pytest.mark.parametrize("row", cells(), ids=lambda row: row[0])
def test_each_cell_of_the_page_is_what_happens(row):
    kind, *words = row
    assert kind in ROWS
    columns = [(how, outside) for outside in (True, False) for how in WRITES]
    for word, (how, outside) in zip(words, columns, strict=True):
        assert outcome(kind, how, outside) == word.removesuffix(" ¹"), f"{kind}, {how}, outside {outside}"


def test_the_page_has_all_kinds():
    assert [row[0] for row in cells()] == list(ROWS)


# --- what a derivative needs ------------------------------------------------------------------------------------


def gradients_after_a_write(call, arguments, place, is_noticed=True):
    """The gradients of all leaves after numbers were written into an argument, or (place None) into the result.

    None if backward refuses, because it needs what was overwritten. It cannot if the write is not noticed.
    """
    with random_key(1):
        y = call(**arguments)
    y = y[0] if isinstance(y, tuple) else y
    if not y.requires_grad:
        return None
    target = arguments.get(place, y)
    with no_grad():
        if place != "nothing" and target.data.flags.writeable:
            (target if is_noticed else target.data)[...] = np.full(target.shape, 7, target.dtype)
    try:
        y.backward(Tensor(np.random.default_rng(3).standard_normal(y.shape).astype(y.dtype)))
    except RuntimeError as error:
        if "was overwritten in place after it was used" in str(error):
            return None
        raise
    return {name: x.grad.numpy() for name, x in arguments.items() if isinstance(x, Tensor) and x.grad is not None}


# Where backward refuses although no gradient would change: whether one needs a value depends on others.
NEEDLESS = {"pow for (1,)": {"1"}, "rms_norm": {"x"}, "conv2d": {"bias", None}}
NEEDLESS |= {f"{what} for (0, 1, 2)": {"0"} for what in ("pow 0", "pow 1", "pow of number")}
NEEDLESS |= {f"{what} of no rows for (0, 1, 2)": {"0", None} for what in ("amax", "min")}
NEEDLESS |= {"linear": {"bias"}, "rnn": {"x", "state"}, "lstm": {"x", "state"}}


def check_that_writes_are_noticed(call, makers, what=None):
    """A value overwritten after the forward pass changes no gradient: backward refuses if it needs it.

    The makers are functions that make arguments. With a name in NEEDLESS, or another one, it refuses only then.
    """
    refused, needed = set(), set()
    for make in makers:
        right = gradients_after_a_write(call, make(), "nothing")
        for place in [None, *(name for name, x in make().items() if isinstance(x, Tensor))] if right else ():
            found = gradients_after_a_write(call, make(), place)
            assert found is None or found.keys() == right.keys()
            for name in found or {}:
                np.testing.assert_array_equal(
                    found[name], right[name], err_msg=f"{place} overwritten: gradient of {name}"
                )
            refused |= {place} if found is None else set()
            unnoticed = gradients_after_a_write(call, make(), place, is_noticed=False) if what else right
            if any(not np.array_equal(unnoticed[name], right[name], equal_nan=True) for name in right):
                needed.add(place)
    assert not what or refused - needed == NEEDLESS.get(what, set()), what


@each_of([case for case in CASES if case.gradient])
def test_no_write_changes_a_gradient_of_a_primitive(case):
    def maker(arrays, leaves):
        return lambda: {str(i): Tensor(x, requires_grad=i in leaves) for i, x in enumerate(arrays)}

    for leaves in ((0, 1), (0,), (1,)) if len(case.samples[0]) == 2 else ((0, 1, 2),):
        makers = [maker(arrays, leaves) for arrays in case.samples]
        what = f"{case.label} for {leaves}"
        check_that_writes_are_noticed(lambda **values: case.fn(*values.values()), makers, what)


@pytest.mark.parametrize("name", [name for name in version_cases.CASES if not name.startswith(("adamw", "muon"))])
def test_no_write_changes_a_gradient_of_a_fused_operation(name):
    def maker(arguments):
        return lambda: version_cases.tensors(arguments, np.float64)

    makers = [maker(arguments) for arguments in version_cases.CASES[name].values()]
    check_that_writes_are_noticed(REGISTRY[name], makers, name)


# --- what a write carries ---------------------------------------------------------------------------------------


def rows_into_a_buffer(w):
    buffer, h = Tensor.zeros(4, 3, dtype="float64"), w
    for t in range(4):
        h = (h * w).tanh() + t
        buffer[t] = h
    return (buffer * buffer.sum(0)).sum()


def results_and_numbers(w):
    y = w * 2
    same = y
    y += w
    y *= 3
    y[1] = 7
    y -= 1
    y /= 2
    y %= 10.0
    assert same is y
    return (y * y).sum()


def a_number_of_its_own(w):
    total = Tensor(0.0, dtype="float64")
    for x in w * w:
        total += x
    return total * total


PROGRAMS = [rows_into_a_buffer, results_and_numbers, a_number_of_its_own]


def test_numbers_of_another_type_are_written_in_that_of_the_tensor():
    w = Tensor([1.0, 2.0], requires_grad=True)
    leaf = Tensor([3.0, 4.0], dtype="float64", requires_grad=True)
    y = w * 2
    y += np.ones(2)
    y *= leaf
    constant = Tensor([1.0, 1.0])
    constant += leaf * 0.5
    constant[1] = leaf[0]
    (y * constant).sum().backward()
    assert (y.dtype, constant.dtype, w.grad.dtype, leaf.grad.dtype) == (*[np.float32] * 3, np.float64)
    assert w.grad.tolist() == [2 * 3 * 2.5, 2 * 4 * 3.0]
    assert leaf.grad.tolist() == [3 * 2.5 + 9 * 0.5 + 20, 5 * 3.0]


@pytest.mark.parametrize("f", PROGRAMS)
def test_gradients_follow_what_is_written(f):
    assert gradcheck(f, [Tensor([0.5, -1.0, 2.0], dtype="float64", requires_grad=True)]) < 1e-6


def test_a_gradient_that_is_kept_is_that_of_the_new_value():
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = (x * 3).retain_grad()
    y *= 2
    (y * Tensor([5.0, 7.0])).sum().backward()
    assert y.grad.tolist() == [5.0, 7.0]
    assert x.grad.tolist() == [30.0, 42.0]


LOST = [
    (lambda y, x: y.__imul__(x), "x *= y: a view of x, or a derivative, still needs the values it has: write x = "),
    (lambda y, x: y[:1].__iadd__(x[:1]), "x += y: a view of x, or a derivative, still needs the values it has"),
    (lambda y, x: y.__setitem__(0, y[1]), "x[i] = y: a view of x, or a derivative, still needs"),
    (lambda y, x: y.__setitem__([0, 0], x), "x[i] = y: a position occurs twice in i, so y would lose gradients"),
    (lambda y, x: x.__setitem__(0, 1.0), "x[i] = y: x is a leaf that requires a gradient: write into it under "),
    (lambda y, x: x.__isub__(1), "x -= y: x is a leaf that requires a gradient: write into it under no_grad(), or"),
    (lambda y, x: x.detach().__iadd__(Tensor.ones(3, 2)), "x += y: the result has shape (3, 2), x has (2,): write "),
    (lambda y, x: Tensor(1.0).expand(2).__iadd__(1), "x += y: elements of an expanded tensor share their memory"),
    (lambda y, x: Tensor.wrap(as_strided(np.ones(1), (2,), (0,))).__iadd__(1), "x += y: elements of an expanded"),
    (lambda y, x: Tensor([1, 2]).__itruediv__(2), "x /= y: the result is float32, and x holds int64: write x = x "),
    (lambda y, x: Tensor.ones(2).__setitem__(0, None), "a NoneType cannot be combined with a tensor"),
    (lambda y, x: recompute(lambda z: z.__iadd__(1), y), "recompute: the function wrote into an argument"),
]


@pytest.mark.parametrize(("write", "message"), LOST)
def test_what_would_be_lost_is_refused(write, message):
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 1.0
    with pytest.raises((RuntimeError, TypeError, ValueError, IndexError), match=f"^{re.escape(message)}"):
        write(y, x)


def test_a_view_that_is_alive_forbids_a_write_and_one_that_is_gone_does_not():
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    view = y[:1]
    with pytest.raises(RuntimeError, match="a view of x"):
        y += 1
    del view
    y += 1
    assert y.tolist() == [3.0, 5.0]


def test_no_grad_concerns_its_own_thread_only():
    entered, left = threading.Event(), threading.Event()

    def other() -> None:
        with no_grad():
            entered.set()
            left.wait()

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
    x = Tensor([1.0], requires_grad=True)
    assert (x * 2).requires_grad  # the other thread is still inside
    left.set()
    thread.join()
