"""A run on a GPU equals one on the CPU: weights, batches, tokens, losses, checkpoints; and it is reproducible."""

import os
import subprocess
import sys

import numpy as np
import pytest

import train as train_py
from gpt.data import TextData
from seq2seq.data import BOS, EOS, SPECIALS, TranslationData
from seq2seq.translate import translate
from tests.emulator.cupy_on_cpu import COMPILER
from tests.gpt.combined_settings import COMBINED
from tests.gpt.configs import FAMILY as GPT
from tests.gpt.configs import GPTOptions
from tests.places import fill
from tests.tiny_runs import ROOT, losses, run_training, same
from tests.tinygrad_lite.cuda.tiny_training import tiny_gpt, tiny_seq2seq, train
from text.decoding.beam import beam_search
from text.decoding.sampling import generate
from text.tokenizers.byte import ByteTokenizer
from tinygrad_lite.precision import precision
from tinygrad_lite.random import keyed_rng
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import MultiHeadAttention
from training.checkpoint import load_checkpoint
from training.corpora.texts import load_files
from training.pair_data import encode_pairs

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


@pytest.mark.usefixtures("workplace")
def test_batches_are_the_same(cuda):
    tokenizer, corpus = ByteTokenizer(SPECIALS), load_files(["text.txt"])
    pairs = encode_pairs(tokenizer, [("ab" * n, "ba" * n) for n in range(1, 30)], BOS, EOS)
    found = []
    for device in ("cpu", cuda):
        options = GPTOptions.of(block_size=8, seed=5, device=device)
        text = TextData(options, corpus, tokenizer, np.arange(200) % 90, np.arange(99), 1.0)
        translated = TranslationData(tokenizer, pairs, pairs[:9], batch_tokens=99, micro_steps=2, seed=5, device=device)
        batches = [batch for step in (0, 7) for batch in text.micro_batches(step, 4, 2)]
        batches += [batch for step in (0, 7) for batch, _ in translated.micro_batches(step)]
        assert {tensor.device for batch in batches for tensor in batch} == {device}
        found.append([tensor.tolist() for batch in batches for tensor in batch])
    assert found[0] == found[1]


MODERN = [name for name in ("speed run", "qwen") if name in COMBINED]
MODERN += [pytest.param("llama", marks=pytest.mark.slow)] if "llama" in COMBINED else []


@pytest.mark.parametrize("use_muon", [True, False])
@pytest.mark.parametrize("name", MODERN)
@pytest.mark.parametrize(("numbers", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-3)])
def test_models_with_modern_parts_have_the_same_losses(name, numbers, tolerance, use_muon, cuda):
    """RMS norm, rotary positions, SwiGLU or ReLU squared, norms of queries and keys, groups of queries; and Muon."""
    expected = train(tiny_gpt("cpu", **COMBINED[name]), "cpu", 4, use_muon=use_muon)
    with precision(numbers):
        found = train(tiny_gpt(cuda, **COMBINED[name]), cuda, 4, use_muon=use_muon)
    assert expected[-1] < expected[0] - 0.01
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("how", ["greedy", "drawn", "beam"])
def test_the_generated_text_is_the_same(how, cuda):
    """Beyond the end of the context too, where the model starts again."""
    texts = []
    for device in ("cpu", cuda):
        model = with_large_weights(tiny_gpt(device, bias=True))
        begun = model.start(np.array([[3, 4, 5], [6, 7, 8]]))
        if how == "beam":
            texts.append([[h.tokens for h in r] for r in beam_search(model.step, *begun, beam=3, max_new_tokens=7)])
        else:
            heat = 0.0 if how == "greedy" else 1.0
            rows = generate(model.step, *begun, max_new_tokens=7, temperature=heat, seed=4)
            texts.append([row.tolist() for row in rows])
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("numbers", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.02)])
@pytest.mark.parametrize(("width", "n_kv_head"), [(128, 4), (24, 2)])
def test_the_weights_that_attention_shows_are_the_same(width, n_kv_head, numbers, tolerance, cuda):
    attention = MultiHeadAttention(width, 4, n_kv_head=n_kv_head)
    x = Tensor(np.random.default_rng(0).standard_normal((2, 40, width)).astype("f4"))
    expected = attention.weights(x, is_causal=True).numpy()
    attention.to(cuda)
    with precision(numbers):
        found = attention.weights(x.to(cuda), is_causal=True).cast("float32").numpy()
    np.testing.assert_allclose(found, expected, atol=tolerance)


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


@both
@pytest.mark.parametrize("steps", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_losses_equal_those_of_the_cpu(make, steps, cuda):
    np.testing.assert_allclose(train(make(cuda), cuda, steps), train(make("cpu"), "cpu", steps), rtol=1e-4)


@both
@pytest.mark.slow
@pytest.mark.parametrize(("numbers", "largest"), [("tf32", 0.01), ("bfloat16", 0.03)])
def test_the_loss_falls_with_fewer_bits_too(make, numbers, largest, cuda):
    """The mean of the last ten of 100 losses differs by a factor of a few rounding errors.

    (One is 2^-12 for TF32, 2^-9 for bfloat16.) Single losses differ more, since a difference grows with each step.
    """
    expected = train(make("cpu"), "cpu", 100)
    with precision(numbers):
        found = train(make(cuda), cuda, 100)
    assert found[0] == pytest.approx(expected[0], rel=largest)
    assert np.mean(found[-10:]) == pytest.approx(np.mean(expected[-10:]), rel=largest)
    assert np.mean(expected[-10:]) < 0.7 * expected[0]


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
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_same_command_gives_the_same_bytes(dtype, cuda):
    settings = {"device": cuda, "dtype": dtype, "dropout": 0.1, "sample_tokens": 5, "max_iters": 4}
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
