"""PyTorch's side on a GPU does the same as ours; here on a CPU, and ours on an emulated GPU."""

import functools
import math

import pytest

from benchmarks import kernels
from benchmarks.gpu_ours import Ours
from benchmarks.gpu_rows import ROWS, differs
from benchmarks.gpu_side import reply_of

torch = pytest.importorskip("torch")
from benchmarks.gpu_torch import Torch  # noqa: E402 (needs torch)

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("row", [row for row in ROWS if row.shape], ids=lambda row: f"{row.work} {row.shape}")
def test_both_sides_compute_the_same(row, cuda):
    question = {"do": "prepare", "work": row.work, "shape": row.shape}
    check = {name: reply_of(side)(question) for name, side in (("ours", Ours(True)), ("torch", Torch(True, "cpu")))}
    assert differs(check) == ""
    if row.work == "train":
        assert check["torch"]["losses"][0] == pytest.approx(math.log(70), abs=0.3)
        assert len(check["torch"]["losses"]) == len(check["ours"]["losses"])


@pytest.mark.parametrize("precision", ["bfloat16", "tf32", "float32"])
@pytest.mark.parametrize("row", [row for row in ROWS if row.group in ("rates", "host", "baby")], ids=lambda r: r.work)
def test_torch_does_every_task_in_every_precision(row, precision):
    ask = reply_of(Torch(True, "cpu"))
    before = torch.get_float32_matmul_precision()
    assert "about" in ask({"do": "facts"})
    ask({"do": "prepare", "work": row.work, "shape": row.shape})
    begun = ask({"do": "begin", "work": row.work, "precision": precision, "variant": "eager", "seconds": 0.001})
    assert "failed" not in begun, begun
    turn = ask({"do": "turn", "variant": "eager", "repeats": begun["repeats"], "begin": 0})
    assert turn["ms"] > 0
    assert torch.get_float32_matmul_precision() == before


def test_precisions_are_those_requested():
    side = Torch(True, "cpu")
    side.prepare("train", "baby")
    seen = []
    loss_of = side.torch_model.loss

    def watched(*batch):
        seen.append((torch.get_float32_matmul_precision(), torch.is_autocast_enabled("cpu")))
        return loss_of(*batch)

    for precision in ("float32", "tf32", "bfloat16"):
        with side.in_precision(precision):
            side.train(precision, watched, 0)
    assert seen == [("highest", False), ("high", False), ("highest", True)]


def test_generation_is_the_same_with_and_without_a_cache():
    side = Torch(True, "cpu")
    side.prepare("write", "gpt2")
    prompt = torch.tensor([[3, 5], [1, 2]])
    cached = side.torch_model.generate_cached(prompt, 9).tolist()
    assert cached == side.torch_model.generate(prompt, 9).tolist()


def test_hugging_face_generates_the_same_number_of_tokens(monkeypatch):
    pytest.importorskip("transformers")
    side = Torch(True, "cpu")
    side.prepare("write", "baby")
    write, written = side.writes(torch.float32, "hugging-face"), []
    theirs = write.__closure__[write.__code__.co_freevars.index("theirs")].cell_contents
    generate = theirs.generate
    monkeypatch.setattr(theirs, "generate", lambda *args, **more: written.append(generate(*args, **more)))
    write(3)
    ours = side.torch_model.generate_cached(torch.tensor([[3]]), side.tokens)
    assert written[0].tolist() == ours.tolist()


def test_kernels_that_the_profiler_sees_are_listed(monkeypatch):
    # Without a GPU there are none; operations on the CPU stand for them.
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.autograd.DeviceType, "CUDA", torch.autograd.DeviceType.CPU)
    on_cpu = functools.partial(torch.profiler.profile, activities=[torch.profiler.ProfilerActivity.CPU])
    monkeypatch.setattr(torch.profiler, "profile", lambda activities: on_cpu())
    spent = kernels.seen_by_cupti(lambda number: torch.ones(64, 64) @ torch.ones(64, 64))
    assert "aten::mm" in [name for name, us in spent if us > 0]
