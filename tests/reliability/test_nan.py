"""A NaN in the middle of a run: its origin is reported, and the run can be resumed from before it."""

import importlib
import math
from contextlib import contextmanager

import numpy as np
import pytest

import train
from tests.places import here
from tests.tiny_runs import ROOT, arguments, losses, run_training
from tinygrad_lite import device, ops
from tinygrad_lite.autograd import Piece
from tinygrad_lite.errors import UserError
from tinygrad_lite.functional.registry import REGISTRY
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.random import draw_position
from tinygrad_lite.tensor import node
from training.checkpoint import load_checkpoint
from training.folder import RunFolder

pytestmark = [pytest.mark.usefixtures("workplace"), pytest.mark.every_device]

STEPS, INTERVAL = 10, 4  # updates of a run, and between its checkpoints
RUN = {"max_iters": STEPS, "eval_interval": INTERVAL, "dropout": 0.1}
KERNELS = sorted((ROOT / "tinygrad_lite" / "cuda").glob("[a-z]*.py"))
PRIMITIVES = [ops.arithmetic, ops.common, ops.elementwise, ops.reductions, ops.shapes]
MODULES = [*PRIMITIVES, *(importlib.import_module(operation.composed.__module__) for operation in REGISTRY.values())]
MODULES += [importlib.import_module(f"tinygrad_lite.cuda.{path.stem}") for path in KERNELS]


def step_now():
    """The step whose forward pass is running; None outside of training."""
    key = draw_position()[0]
    return key[1] if len(key) == 4 else None


def spoiled(array, rng):
    """A copy with a NaN somewhere; of a gradient that is 0 but for a piece, the whole of it."""
    array = array.added() if isinstance(array, Piece) else array
    array = np.asarray(array) if isinstance(array, np.generic) else array  # NumPy turns 0-d results into scalars
    array = device.xp_of(array).array(array, order="C")  # so that reshape gives a view
    array.reshape(-1)[rng.integers(array.size)] = np.nan
    return array


@contextmanager
def changed_nodes(change):
    """Inside, `change` gets result, parents, backward and name of each node of a step; result and backward are its."""

    def make(y, parents, back, op, *how, **kind):
        if step_now() is not None and y.dtype.kind == "f":
            y, back = change(y, parents, back, op)
        return node(y, parents, back, op, *how, **kind)

    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            if hasattr(module, "node"):
                patch.setattr(module, "node", make)
        yield


def operations_of_a_step(composed):
    """The operations in the forward pass of a step, and those of them that pass a gradient on."""
    forward, backward = set(), set()

    def note(y, parents, back, op):
        forward.add(op)
        if any(parent.requires_grad for parent in parents):
            backward.add(op)
        return y, back

    with changed_nodes(note):
        run_training(out_dir=f"ops-{composed}", composed=composed, **RUN)
    return sorted(forward), sorted(backward)


def injected(rng, step, op, backward):
    """Inside, every `op` of this step returns a NaN, in its result or in its gradient."""

    def sick(y, parents, back, name):
        def sick_back(dy, *so_far):
            gradients = list(back(dy, *so_far))
            for i, parent in enumerate(parents):
                if gradients[i] is not None and parent.requires_grad:
                    gradients[i] = spoiled(gradients[i], rng)
            return tuple(gradients)

        if (step_now(), name) != (step, op):
            return y, back
        return (y, sick_back) if backward else (spoiled(y, rng), back)

    return changed_nodes(sick)


def check_that_it_resumes(out_dir, step, healthy, **changes):
    """The checkpoint is from the last evaluation before the step, and resuming gives the bytes of a healthy run."""
    run = RunFolder(out_dir)
    saved = load_checkpoint(run.last, optimizer=True)  # refuses NaN
    assert saved.step == max(s for s in range(0, step, INTERVAL)) <= step
    assert max(losses(run), default=0) <= step
    assert train.main(["--resume", f"--out_dir={out_dir}"]) == 0
    assert run.last.read_bytes() == healthy.last.read_bytes()
    assert losses(run) == losses(healthy)


@pytest.mark.parametrize("count", [6, pytest.param(120, marks=pytest.mark.slow)])
def test_a_nan_is_reported_with_its_operation_and_the_run_resumes(count, report):
    seed = 7
    rng = np.random.default_rng(seed)
    known = {composed: operations_of_a_step(composed) for composed in (False, True)}
    assert known[False] != known[True]
    healthy = {composed: RunFolder(f"ops-{composed}") for composed in (False, True)}
    named, gradients, hidden = set(), 0, 0
    for trial in range(count):
        composed, backward, step = bool(rng.integers(2)), bool(rng.integers(2)), int(rng.integers(STEPS + 1))
        op = str(rng.choice(known[composed][backward]))
        hint = f"seed {seed}, trial {trial}: {op}, step {step}, composed {composed}, backward {backward}"
        out_dir = f"run-{trial}"
        with injected(rng, step, op, backward):
            try:
                train.main(arguments(out_dir=out_dir, composed=composed, **RUN))
            except UserError as error:
                said = str(error)
            else:  # a mask removed it, as it does scores of later positions; then nothing may have changed
                assert composed or here() != "cpu", hint
                assert RunFolder(out_dir).last.read_bytes() == healthy[composed].last.read_bytes(), hint
                hidden += 1
                continue
        what = f"the gradient of {op}" if backward else op
        assert said.startswith(f"step {step}: the loss is "), f"{hint}: {said}"
        assert f"; {what} produced a NaN (shape " in said, f"{hint}: {said}"
        assert "\n" not in said, hint
        if step:
            assert f"--resume with a smaller --learning_rate or --grad_clip: the checkpoints in {out_dir}" in said, hint
            check_that_it_resumes(out_dir, step, healthy[composed])
        else:
            assert not RunFolder(out_dir).last.exists(), hint
        named.add(what)
        gradients += backward
    report(f"NaN: {count} times (seed {seed}), {gradients} in a gradient; {hidden} hidden by a mask; named: {named}")


@pytest.mark.cpu_only("a GPU replays the passes, into which nothing can be injected")
def test_a_nan_that_does_not_recur_is_reported_as_such():
    """As after a memory fault: when the step is run again, nothing is wrong with it."""
    healthy, calls = run_training(out_dir="healthy", **RUN), []

    def sick_once(y, parents, back, op):
        if (step_now(), op) == (6, "layer_norm"):
            calls.append(op)
            y = y * np.float32(math.nan) if len(calls) == 1 else y
        return y, back

    reason = r"step 6: the loss is nan .*no operation produced it when the step was run again"
    with changed_nodes(sick_once), pytest.raises(UserError, match=reason):
        train.main(arguments(**RUN))
    check_that_it_resumes("run", 6, healthy)


@pytest.mark.parametrize("count", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_a_weight_that_becomes_nan_is_named_and_the_run_resumes(count):
    rng, update = np.random.default_rng(11), Optimizer.step
    healthy = run_training(out_dir="healthy", **RUN)
    for trial in range(count):
        step, broken = int(rng.integers(1, STEPS + 1)), []

        def break_a_weight(self, step=step, broken=broken):
            update(self)
            if self.steps == step:
                name = str(rng.choice(sorted(self.memory.named)))
                self.memory.named[name].data.reshape(-1)[0] = np.nan
                broken.append(name)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Optimizer, "step", break_a_weight)
            with pytest.raises(UserError) as caught:
                train.main(arguments(out_dir=f"run-{trial}", **RUN))
        assert f"step {step}: " in str(caught.value)
        assert f"the update before this step had already broken the parameter {broken[0]};" in str(caught.value)
        check_that_it_resumes(f"run-{trial}", step, healthy)
