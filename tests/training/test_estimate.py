"""The memory and time that a run takes, and the messages when memory runs out."""

import re
from unittest.mock import Mock

import numpy as np
import pytest

import sample
import train
from gpt.model import GPT
from tests.tiny_runs import arguments, run_training
from tinygrad_lite.device import Device, get_device, register_device
from tinygrad_lite.errors import TooLittleMemory
from training.estimate import amount, shortage

CUPY = "Out of memory allocating 2,684,354,560 bytes (allocated so far: 1,000 bytes)."
NUMPY = "Unable to allocate 4.00 GiB for an array with shape (1073741824,) and data type float32"


def said_by(main, words):
    """The sentence with which a command ends for lack of memory."""
    with pytest.raises(TooLittleMemory) as short:  # both a MemoryError and a UserError
        main(words)
    return str(short.value)


# --- when memory runs out -----------------------------------------------------------------------------------------


def test_a_shortage_repeats_the_size_that_the_library_requested():
    nowhere = "there is not enough memory on the computer: "
    assert shortage(MemoryError(NUMPY), "cpu") == f"{nowhere}4.00 GiB was requested"
    assert shortage(MemoryError(), "cpu") == f"{nowhere}more was requested"
    assert (amount(2**20 * 1023), amount(2**30 * 1024)) == ("1,023 MiB", "1,024.0 GiB")


@pytest.fixture
def nearly_full(cuda):
    """A GPU with 1.5 of its 8 GiB free."""
    place = get_device(cuda)
    register_device(Device(**{**vars(place), "memory": lambda: (3 << 29, 8 << 30)}))
    yield cuda
    register_device(place)


SHORTAGES = [(MemoryError(CUPY), r"2\.5 GiB"), (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"), "more")]


@pytest.mark.parametrize(("error", "amount"), SHORTAGES)
def test_training_on_a_gpu_that_is_too_small_gives_advice(error, amount, workplace, nearly_full, monkeypatch):
    assert_advice(arguments(device=nearly_full), error, amount, monkeypatch)


def assert_advice(words, error, amount, monkeypatch):
    """train.py with these words, whose loss ends with this error, says what is missing and what helps."""
    monkeypatch.setattr(GPT, "loss", Mock(side_effect=error))
    assert re.fullmatch(
        rf"there is not enough memory on the GPU: {amount} was requested, 1\.5 GiB of its 8\.0 GiB is free; "
        r"weights, gradients and two moments take \d+ MiB, the activations of a micro-step about \d+ MiB: use "
        r"a smaller --batch_size \(with more --gradient_accumulation_steps an update stays the same\) or "
        r"--recompute or a shorter --block_size or a smaller model \(--n_layer, --n_embd\) or --dtype bfloat16",
        said_by(train.main, words),
    )


def test_training_on_a_computer_that_is_too_small_gives_advice(workplace, monkeypatch):
    """Without advice for GPUs; for a resumed run, only options that can be changed are named."""
    run_training(max_iters=2, eval_interval=2)
    monkeypatch.setattr(GPT, "loss", Mock(side_effect=MemoryError(NUMPY)))
    words = ["--resume", "--out_dir=run", "--max_iters=9", "--composed"]
    said = said_by(train.main, words)
    assert "there is not enough memory on the computer: 4.00 GiB was requested; weights, gradients and two" in said
    assert said.endswith(
        "use a smaller --batch_size (with more --gradient_accumulation_steps an update stays the same) or "
        "--recompute or the fused operations (without --composed); run/last.safetensors is intact: --resume continues "
        "from there"
    )
    monkeypatch.setattr(GPT, "loss", Mock(side_effect=RuntimeError("cudaErrorIllegalAddress")))  # something else
    with pytest.raises(RuntimeError, match="cudaErrorIllegalAddress"):
        train.main(words)


def test_generating_where_memory_is_too_small_gives_advice(workplace, nearly_full, monkeypatch):
    run = run_training(max_iters=2)
    monkeypatch.setattr(GPT, "start", Mock(side_effect=MemoryError(CUPY)))
    said = said_by(sample.main, [str(run.best), f"--device={nearly_full}", "--beam=3"])
    assert "on the GPU: 2.5 GiB was requested, 1.5 GiB of its 8.0 GiB is free; the weights take 0 MiB, keys and" in said
    assert "use a smaller --beam or a shorter prompt or --use_cache=False, which is slow or --device cpu" in said
    monkeypatch.setattr(GPT, "start", lambda *_: np.empty(2**55))
    said = said_by(sample.main, [str(run.best)])
    assert "on the computer: 256. PiB was requested; the weights take" in said
    assert said.endswith("or a smaller model")
