"""The encoder-decoder: which outputs depend on which inputs, and a comparison with PyTorch's Transformer."""

import math
from dataclasses import replace

import numpy as np
import pytest

from families import FAMILIES
from seq2seq.model import Seq2Seq
from tests.gpt.configs import Seq2SeqConfig, has
from tests.lively import assert_recompute_changes_nothing, gradients, lively
from tinygrad_lite import Tensor
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.generator import pad_rows
from tinygrad_lite.transformer import sinusoidal_positions
from training.model_config import read_model_config

pytestmark = pytest.mark.every_device

PAD, BOS, EOS = 0, 1, 2
SIZES = {"n_layer": 2, "n_head": 2, "n_embd": 12, "n_inner": 20, "block_size": 16}
SMALL = Seq2SeqConfig(23, PAD, BOS, EOS, **SIZES, dropout=0.0, label_smoothing=0.0)
TODAY = {"norm": "rmsnorm", "norm_weight": False, "positions": "rotary", "qk_norm": True, "attention_scale": 2.0}
TODAY |= {"activation": "relu2", "bias": False}
KINDS = [{}, {"norm_first": False}, {"positions": "learned", "bias": False, "activation": "gelu"}, TODAY]
KINDS += [{"positions": "rotary", "norm": "rmsnorm", "norm_first": False, "activation": "swiglu"}]
LUONG = {"mixer": "lstm", "attend": "global", "score": "general"}
EVERY_KIND = [*KINDS, LUONG, LUONG | {"score": "dot", "input_feeding": True}, LUONG | {"attend": "none"}]
EVERY_KIND += [{"mixer": "rnn", "score": "additive"}, LUONG | {"attend": "monotonic", "attention_reach": 2}]
EVERY_KIND += [LUONG | {"attend": "predictive", "attention_reach": 3, "input_feeding": True}]
KINDS, EVERY_KIND = ([kind for kind in kinds if has(kind, Seq2SeqConfig)] for kinds in (KINDS, EVERY_KIND))
SOURCES = [[5, 9, 7, 3, 8, 11], [4, 4], [21, 3, 6, 9]]


def small(dtype="float64", **settings) -> Seq2Seq:
    config = replace(SMALL, **settings)
    return lively(lambda: FAMILIES["seq2seq"].model_of(config)(config), dtype)


def targets_of(sources) -> np.ndarray:
    return pad_rows([[BOS, *(3 + (i + 1) % 20 for i in row), EOS] for row in sources], PAD).astype(np.int64)


def batch_of(sources) -> tuple[Tensor, Tensor]:
    return Tensor(pad_rows(sources, PAD)), Tensor(targets_of(sources))


# --- sizes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [*KINDS, {"norm_first": False, "bias": False}, {"n_inner": 0}])
def test_a_blueprint_has_the_sizes_of_the_model(settings):
    config = replace(SMALL, **settings)
    blueprint, model = Seq2Seq.blueprint(config), Seq2Seq(config)
    assert blueprint.num_parameters() == model.num_parameters()
    assert "lm_head" not in str([*model.state_dict()])
    c, f = config.n_embd, config.n_hidden
    matrices = 3 if config.activation == "swiglu" else 2
    both = config.n_layer * (4 * c * c + 8 * c * c + 2 * matrices * c * f)  # encoder and decoder
    assert blueprint.flops_per_token() == model.flops_per_token() == 6 * (both + config.vocab_size * c)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_both_sides_read_scaled_embeddings_and_positions(positions):
    model = small(positions=positions)
    table = model.source_positions.weight.numpy() if positions == "learned" else sinusoidal_positions(16, 12)
    expected = model.token_embedding.weight.numpy()[[5, 9]] * math.sqrt(12) + table[3:5]
    np.testing.assert_allclose(model._embed(Tensor([[5, 9]]), 3, "source_positions").numpy()[0], expected, rtol=1e-6)


@pytest.mark.parametrize("wrong", [{"n_head": 5}, {"positions": "none"}, {"n_head": 4, "positions": "rotary"}])
def test_invalid_settings_are_refused(wrong):
    """More are in tests/gpt/test_config.py, and wrong special tokens in tests/training/test_model_config.py."""
    with pytest.raises(CheckpointError):
        read_model_config(Seq2SeqConfig, SMALL.to_json() | wrong)


# --- what may depend on what ----------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", EVERY_KIND)
def test_padding_changes_nothing(settings):
    """Each row in a batch of unequal lengths has the values, loss and gradients that it has alone."""
    model = small(**settings)
    together = model(*batch_of(SOURCES)).numpy()
    model.loss(batch_of(SOURCES)).backward()
    expected, total = gradients(model), sum(len(source) + 1 for source in SOURCES)
    for row, source in enumerate(SOURCES):
        alone = model(*batch_of([source])).numpy()[0]
        np.testing.assert_allclose(together[row, : len(alone)], alone, rtol=1e-10, atol=1e-12)
        (model.loss(batch_of([source])) * ((len(source) + 1) / total)).backward()
    for name, found in gradients(model).items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("settings", EVERY_KIND)
def test_the_future_never_leaks(settings):
    model, source, target = small(**settings), Tensor(pad_rows(SOURCES, PAD)), targets_of(SOURCES)
    before = model(source, Tensor(target)).numpy()
    for t in range(1, target.shape[1]):
        changed = target.copy()
        changed[:, t:] = 3 + (changed[:, t:] + 5) % 20
        after = model(source, Tensor(changed)).numpy()
        np.testing.assert_array_equal(after[:, :t], before[:, :t])
        assert not np.allclose(after[:, t], before[:, t])


@pytest.mark.parametrize("norm_first", [True, False])
def test_recompute_gives_the_same_gradients_to_the_last_bit(norm_first):
    """The memory, which every block of the decoder uses, gets its gradients in the same order."""

    def make(recompute):
        return small("float32", dropout=0.2, n_layer=3, norm_first=norm_first, recompute=recompute)

    assert_recompute_changes_nothing(make, [batch_of([[3, 4, 5], [6, 7]]), batch_of([[8, 9, 3, 4], [5]])])


@pytest.mark.parametrize("settings", EVERY_KIND)
def test_gradients_are_right(settings):
    """Those of the embedding are the sum over its three uses: source, target, and what follows."""
    model = small(**settings | {"n_layer": 2 if settings in ({}, LUONG) else 1})
    gradcheck(lambda *_: model.loss(batch_of(SOURCES)), model.parameters(), directions=1)


def test_smoothing_is_for_training_and_the_reported_loss_is_not_smoothed():
    smoothed, plain, batch = small(label_smoothing=0.1), small(), batch_of(SOURCES)
    assert smoothed.loss(batch).item() != pytest.approx(plain.loss(batch).item(), abs=1e-3)
    assert smoothed.eval().loss(batch).item() == plain.loss(batch).item()


def test_sentences_that_are_too_long_or_empty_are_refused():
    model = small()
    with pytest.raises(ValueError, match="17 positions do not fit into block_size 16"):
        model.start([[5] * 17])
    with pytest.raises(ValueError, match="a sentence is empty"):
        model.start([[5], []])


# --- translating ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", EVERY_KIND)
def test_cached_equals_uncached_and_the_forward_pass(settings):
    model = small(**settings).eval()
    target = targets_of(SOURCES[:1])[0]
    expected = model(Tensor(np.array(SOURCES[:1])), Tensor(target[None])).log_softmax().numpy()[0]
    for use_cache in (True, False):
        log_probs, state = model.start(SOURCES[:1], use_cache)
        for t in range(len(target) - 1):
            np.testing.assert_allclose(log_probs[0], expected[t], rtol=1e-9, atol=1e-11)
            log_probs, state = model.step(target[t + 1 : t + 2], state)


# --- PyTorch's own --------------------------------------------------------------------------------------------


RENAMED = {"layers.": "", "self_attn": "mixer", "multihead_attn": "cross", "linear1": "mlp.up", "linear2": "mlp.down"}
RENAMED |= {"coder.norm": "coder_norm", "out_proj": "output", "norm1": "mixer_norm", "norm3": "mlp_norm"}


def our_names(theirs: str) -> list[str]:
    """The names of our parameters that one of torch.nn.Transformer's consists of."""
    name = theirs.replace("norm2", "cross_norm" if theirs.startswith("decoder") else "mlp_norm")
    for old, new in RENAMED.items():
        name = name.replace(old, new)
    if "in_proj_" in name:
        return [name.replace("in_proj_", f"{part}.") for part in ("query", "key", "value")]
    return [name]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_loss_and_gradients_are_those_of_torchs_transformer(norm_first, activation):
    torch = pytest.importorskip("torch")
    model = small(norm_first=norm_first, activation=activation)
    config, state = model.config, model.state_dict()
    sizes = (config.n_embd, config.n_head, config.n_layer, config.n_layer, config.n_hidden, 0.0, activation)
    theirs = torch.nn.Transformer(*sizes, batch_first=True, norm_first=norm_first, dtype=torch.float64)
    if not norm_first:  # torch adds a norm at either end even then; the paper does not
        theirs.encoder.norm = theirs.decoder.norm = None
    names = {name: our_names(name) for name in theirs.state_dict()}
    packed = {name: torch.tensor(np.concatenate([state[part] for part in parts])) for name, parts in names.items()}
    theirs.load_state_dict(packed)
    table = torch.tensor(state["token_embedding.weight"], requires_grad=True)

    source, target = pad_rows(SOURCES, PAD), targets_of(SOURCES)
    loss = model.loss(batch_of(SOURCES))
    loss.backward()

    def embed(ids):
        places = torch.tensor(sinusoidal_positions(ids.shape[1], config.n_embd).astype(np.float64))
        return table[torch.tensor(ids)] * config.n_embd**0.5 + places

    hidden = theirs(
        embed(source),
        embed(target[:, :-1]),
        tgt_mask=torch.nn.Transformer.generate_square_subsequent_mask(target.shape[1] - 1, dtype=torch.float64),
        src_key_padding_mask=torch.tensor(source == PAD),
        memory_key_padding_mask=torch.tensor(source == PAD),
        tgt_is_causal=True,
    )
    logits, wanted = (hidden @ table.T).flatten(0, 1), torch.tensor(target[:, 1:]).flatten()
    their_loss = torch.nn.functional.cross_entropy(logits, wanted, ignore_index=PAD)
    their_loss.backward()
    assert loss.item() == pytest.approx(their_loss.item(), rel=1e-10)
    ours = gradients(model)
    np.testing.assert_allclose(ours["token_embedding.weight"], table.grad.numpy(), rtol=1e-8, atol=1e-10)
    for name, weight in theirs.named_parameters():
        packed = np.concatenate([ours[part] for part in names[name]])
        np.testing.assert_allclose(packed, weight.grad.numpy(), rtol=1e-8, atol=1e-10, err_msg=name)
