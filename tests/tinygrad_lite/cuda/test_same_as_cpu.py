"""A run on a GPU equals one on the CPU: weights, batches, tokens, losses, checkpoints; and it is reproducible."""

import os
import subprocess
import sys

import numpy as np
import pytest

import train as train_py
from seq2seq.data import SPECIALS
from seq2seq.translate import translate
from tests.emulator.cupy_on_cpu import COMPILER
from tests.gpt.combined_settings import COMBINED
from tests.gpt.configs import FAMILY as GPT
from tests.places import fill
from tests.tiny_runs import ROOT, losses, run_training, same
from tests.tinygrad_lite.cuda.tiny_training import tiny_gpt, tiny_seq2seq, train
from text.decoding.sampling import generate
from text.tokenizers.byte import ByteTokenizer
from tinygrad_lite.precision import precision
from tinygrad_lite.random import keyed_rng
from training.checkpoint import load_checkpoint

both = pytest.mark.parametrize("make", [tiny_gpt, tiny_seq2seq])


def with_large_weights(model):
    """With weights so large that every token matters."""
    for name, parameter in model.named_parameters():
        fill(parameter, 0.4 * keyed_rng(2, name).standard_normal(parameter.shape))
    return model.eval()


def bytes_of(model):
    return {name: array.tobytes() for name, array in model.state_dict().items()}


# --- weights and text---------------------------------------------------------------------------------------------


@both
def test_initial_weights_are_the_same(make, cuda):
    assert bytes_of(make(cuda)) == bytes_of(make("cpu"))


MODERN = [name for name in ("speed run", "qwen") if name in COMBINED]
MODERN += [pytest.param("llama", marks=pytest.mark.slow)] if "llama" in COMBINED else []


@pytest.mark.parametrize("name", MODERN)
@pytest.mark.parametrize(("numbers", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-3)])
def test_models_with_modern_parts_have_the_same_losses(name, numbers, tolerance, cuda):
    """RMS norm, rotary positions, SwiGLU or ReLU squared, norms of queries and keys, groups of queries; and Muon."""
    expected = train(tiny_gpt("cpu", **COMBINED[name]), "cpu", 4, use_muon=True)
    with precision(numbers):
        found = train(tiny_gpt(cuda, **COMBINED[name]), cuda, 4, use_muon=True)
    assert expected[-1] < expected[0] - 0.01
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_generated_text_is_the_same(temperature, cuda):
    """Beyond the end of the context too, where the model starts again."""
    texts = []
    for device in ("cpu", cuda):
        model = with_large_weights(tiny_gpt(device, bias=True))
        begun = model.start(np.array([[3, 4, 5], [6, 7, 8]]))
        rows = generate(model.step, *begun, max_new_tokens=7, temperature=temperature, seed=4)
        texts.append([row.tolist() for row in rows])
    assert texts[0] == texts[1]


@pytest.mark.parametrize("beam", [1, 3])
def test_translations_are_the_same(beam, cuda):
    tokenizer = ByteTokenizer(SPECIALS)
    ids = dict(zip(("pad", "bos", "eos"), (tokenizer.specials[name] for name in SPECIALS), strict=True))
    found = []
    for device in ("cpu", cuda):
        model = with_large_weights(tiny_seq2seq(device, vocab_size=tokenizer.vocab_size, **ids))
        found.append(translate(model, tokenizer, ["abc", "Grün", "d"], beam=beam))
    for here, there in zip(*found, strict=True):
        assert [t.text for t in here] == [t.text for t in there]
        np.testing.assert_allclose([t.log_prob for t in there], [t.log_prob for t in here], rtol=1e-4)


# --- the same losses ----------------------------------------------------------------------------------------------


STEPS = [(6, "float32", 1e-4), (6, "bfloat16", 2e-2), pytest.param(100, "float32", 1e-4, marks=pytest.mark.slow)]


@both
@pytest.mark.parametrize(("steps", "numbers", "tolerance"), STEPS)
def test_losses_equal_those_of_the_cpu(make, steps, numbers, tolerance, cuda):
    with precision(numbers):
        found = train(make(cuda), cuda, steps)
    np.testing.assert_allclose(found, train(make("cpu"), "cpu", steps), rtol=tolerance)


# --- the same checkpoints -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("trained_on", ["cuda", "cpu"])
def test_a_run_can_move_between_devices(trained_on, cuda):
    """Stopped on one device, it continues on the other, from the same bytes to the same losses."""
    places = (cuda, "cpu") if trained_on == "cuda" else ("cpu", cuda)
    whole = run_training(out_dir="whole", device="cpu", max_iters=6)
    run = run_training(device=places[0], max_iters=3, lr_decay_iters=6)
    saved, trained = load_checkpoint(run.last), GPT.read(run.last)
    assert bytes_of(trained.make_model(places[1])) == {name: array.tobytes() for name, array in saved.weights.items()}
    assert train_py.main(["--resume", "--out_dir=run", "--max_iters=6", f"--device={places[1]}"]) == 0
    found, expected = losses(run), losses(whole)
    assert list(found) == list(range(1, 7))
    np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=1e-4)


@pytest.mark.usefixtures("workplace")
def test_the_same_command_gives_the_same_bytes(cuda):
    settings = {"device": cuda, "dtype": "bfloat16", "dropout": 0.1, "sample_tokens": 5, "max_iters": 4}
    same(*(run_training(out_dir=name, **settings) for name in ("one", "two")))


# --- threads in any order, and within their arrays ----------------------------------------------------------------

needs_compiler = pytest.mark.skipif(not COMPILER, reason="the emulated GPU compiles kernels with g++")


def start(**settings: str) -> subprocess.Popen:
    """A process that trains tiny models on the emulated GPU and prints a hash of the results."""
    command = [sys.executable, "-m", "tests.tinygrad_lite.cuda.tiny_training"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | settings, stdout=pipe, stderr=pipe, encoding="utf-8")


@needs_compiler
@pytest.mark.slow
def test_the_order_in_which_threads_run_makes_no_difference():
    """In some order, a kernel that lacks a barrier reads numbers before they are written."""
    processes = [start(CUDA_ON_CPU_ORDER=order) for order in "012"]
    said = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert len({out for out, _ in said}) == 1
    assert len(said[0][0].strip()) == 64


@needs_compiler
@pytest.mark.slow
def test_kernels_stay_within_their_arrays():
    """AddressSanitizer checks every byte that they read or write."""
    found = subprocess.run([COMPILER, "-print-file-name=libasan.so"], capture_output=True, encoding="utf-8", check=True)
    if not os.path.isabs(library := found.stdout.strip()):
        pytest.skip("g++ was installed without AddressSanitizer")
    sanitize = "-fsanitize=address --param=asan-stack=0"  # it does not know the threads' stacks
    process = start(LD_PRELOAD=library, ASAN_OPTIONS="detect_leaks=0", CUDA_ON_CPU_FLAGS=sanitize)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert len(out.strip()) == 64
