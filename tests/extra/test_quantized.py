"""Quantized weights in sample.py, the memory that they save, and the table of what they cost."""

import tracemalloc
from pathlib import Path

import numpy as np

from docs.course import check
from extra.gpt.config import GPTConfig
from gpt.model import GPT
from tests.tiny_runs import sampled, table
from text.tokenizers.byte import ByteTokenizer
from tinygrad_lite.quantize import KINDS, quantize, weight_bytes
from training.family import Trained

quantized = check.load(check.chapters()[18] / "quantized.py")


def test_the_table_has_the_loss_and_the_memory_of_each_kind(trained, capsys):
    rows = table(capsys, quantized, "out/goethe", "--text", "text.txt", "--characters", 200)
    assert list(rows) == ["none", *KINDS]
    Path("short.txt").write_text(Path("text.txt").read_text("utf-8")[:200], encoding="utf-8")
    for kind, (_, size, _, bits, _, seconds, unit) in rows.items():
        assert float(seconds) > 0
        assert unit == "ms"
        out, err = sampled(capsys, "out/goethe", "--score", "short.txt", "--quantize", kind)
        assert out.split()[0] == bits
        assert kind == "none" or f"all weights {float(size):,.1f} MB instead of" in err
    out, _ = sampled(capsys, *"--quantize int8 --greedy --max_new_tokens 20 --start Grau".split())
    assert (out[:4], len(out)) == ("Grau", len("Grau") + 20 + 1)
    loss = {kind: float(row[3]) for kind, row in rows.items()}
    assert abs(loss["int8"] / loss["none"] - 1) < 0.01
    assert 0 < abs(loss["nf4"] / loss["none"] - 1) < 0.1


def test_no_second_copy_of_the_weights_is_made(tmp_path):
    """A model takes its arrays from what was loaded, and quantization replaces them one by one."""
    config = GPTConfig(64, n_layer=4, n_head=2, n_embd=128, block_size=8)
    tracemalloc.start()
    weights = {name: array.copy() for name, array in GPT(config).state_dict().items()}
    loaded = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    trained = Trained(tmp_path, "", GPT, config, ByteTokenizer(), weights)
    del weights
    model = trained.make_model(take=True)
    saving = quantize(model, "nf4")
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert trained.weights == {}
    assert peak - loaded < saving.before / 4
    assert now < weight_bytes(model) + saving.before / 20 < saving.before / 5


def test_weights_are_copied_unless_they_are_taken():
    config = GPTConfig(8, n_layer=1, n_head=1, n_embd=8, block_size=4)
    weights = GPT(config).state_dict()  # which cannot be written, so they are copied in any case
    taken = {name: array.copy() for name, array in weights.items()}
    kept, own = dict(taken), GPT.from_weights(config, taken)
    assert not any(np.shares_memory(own.state_dict()[name], array) for name, array in kept.items())
    given = GPT.from_weights(config, taken, take=True)
    assert taken == {}
    assert all(np.shares_memory(given.state_dict()[name], array) for name, array in kept.items())
    assert all(p.data.flags.writeable for p in GPT.from_weights(config, dict(weights), take=True).parameters())
