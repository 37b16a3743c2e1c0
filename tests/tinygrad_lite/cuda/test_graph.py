"""Training steps whose forward and backward passes are a graph: the bytes of launched ones, and when they are not."""

from contextlib import nullcontext

import pytest

from tests.gpt.combined_settings import SPEED_RUN
from tests.tinygrad_lite.cuda.tiny_training import tiny_gpt, tiny_seq2seq, train
from tinygrad_lite.autograd import Observer, no_grad
from tinygrad_lite.cuda.graph import LAUNCHED, Repeated
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.precision import precision

STEPS = 5


def recomputing(device, **settings):
    model = tiny_gpt(device, **settings)
    for block in model.blocks:
        block.recompute = True
    return model


CASES = {
    "gpt-2": (tiny_gpt, {"bias": True}, {}),
    "dropout": (tiny_gpt, {"n_embd": 64, "dropout": 0.2}, {}),
    "speed run": (tiny_gpt, SPEED_RUN | {"dropout": 0.1}, {"use_muon": True}),
    "accumulated": (tiny_gpt, {"dropout": 0.1}, {"micro_steps": 3}),
    "recomputed": (recomputing, {"n_embd": 64, "dropout": 0.2}, {}),
    "translation": (tiny_seq2seq, {"dropout": 0.1}, {}),
}


class Counted(Repeated):
    """Counts its replays, and says from which step on there are any."""

    def __init__(self):
        super().__init__()
        self.replays = []

    def passes(self, parts, optimizer, step, losses):
        yield from super().passes(parts, optimizer, step, losses)
        if self.replay is not None:
            self.replays.append(step)


@pytest.mark.parametrize("case", CASES)
def test_replayed_steps_equal_launched_ones(cuda, case):
    """Losses and weights, byte for byte, with the same dropout in each step, which differs from step to step."""
    make, settings, options = CASES[case]
    numbers = "float32" if case == "gpt-2" else "bfloat16"
    found, repeated = [], Counted()
    with precision(numbers):
        for how in ({}, {"repeated": repeated}):
            model = make(cuda, **settings)
            losses = train(model, cuda, STEPS, **options, **how)
            found.append((losses, {name: array.tobytes() for name, array in model.state_dict().items()}))
    assert found[0] == found[1]
    first = LAUNCHED + (numbers == "bfloat16")  # the rounded copy of the weights is made after the first step
    assert repeated.replays == list(range(first, STEPS))


@pytest.mark.parametrize("what", ["another shape", "written weights", "an observer", "composed"])
def test_what_changes_is_launched_and_recorded_again(cuda, what):
    """Step 4 differs from the others; the weights are those of launched steps all the same."""
    found = []
    for repeated in (None, Counted()):
        with precision("bfloat16"):
            model = tiny_gpt(cuda, dropout=0.1)

            def changed(step, parts, model=model):
                if step == 4 and what == "another shape":
                    parts = [(tuple(x[:2] for x in batch), share) for batch, share in parts]
                elif step == 4 and what == "written weights":
                    with no_grad():
                        model.token_embedding.weight *= 0.5
                around = {"composed": composed, "an observer": Observer}.get(what, nullcontext)
                return parts, around() if step == 4 else nullcontext()

            losses = train(model, cuda, 10, repeated=repeated, changed=changed)
        found.append((losses, {name: array.tobytes() for name, array in model.state_dict().items()}))
    assert found[0] == found[1]
    assert 4 not in repeated.replays
    assert {3, 9} <= {*repeated.replays}


def test_passes_that_cannot_be_captured_are_launched(cuda):
    model = tiny_gpt(cuda)
    plain, read = model.loss, []

    def loss(batch):
        found = plain(batch)
        read.append(found.item())  # a number that the host reads
        return found

    expected = train(tiny_gpt(cuda), cuda, 4)
    model.loss = loss
    repeated = Counted()
    assert train(model, cuda, 4, repeated=repeated) == expected
    assert repeated.replays == []
    assert len(read) == 4
