"""Adapters in peft's layout: written and read back, compared with peft itself, and refused if something is wrong."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from extra.adapters.adapter import fingerprint
from extra.families import GPT as FAMILY
from extra.pretrained import export
from extra.pretrained.read import load_pretrained
from gpt.model import GPT
from tests.extra.pretrained.gpt2_folders import byte_folder, write_json
from tests.extra.pretrained.test_llama import LLAMA, QWEN2, llama_folder
from tinygrad_lite import Tensor
from tinygrad_lite.adapt import add_lora, freeze, learned
from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.random import random_key
from training.checkpoint import Checkpoint, save_checkpoint

IDS = np.array([[3, 1, 4, 1, 5, 9, 2, 6]])
BASES = ["gpt2", "llama", "qwen2"]


def base_folder(kind: str, folder: Path) -> Path:
    """A model with random weights in the layout of GPT-2 or Llama, whose tokens are bytes."""
    return byte_folder(folder) if kind == "gpt2" else llama_folder(folder, {"llama": LLAMA, "qwen2": QWEN2}[kind])


def our_adapter(base: Path, path: Path, targets: tuple[str, ...] = ()) -> np.ndarray:
    """Write an adapter with random numbers as a run would; returns the logits of the adapted model."""
    _, config, weights, _ = load_pretrained(base, FAMILY.layouts)
    model, rng = GPT.from_weights(config, weights).eval(), np.random.default_rng(5)
    freeze(model, ["*"])
    with random_key(5):
        for part in add_lora(model, rank=2, alpha=3.0, targets=targets).values():
            part.lora_B.weight.data[...] = 0.3 * rng.standard_normal(part.lora_B.weight.shape)
    facts = {"path": base.as_posix(), "sha256": fingerprint(weights), "alpha": 3.0}
    state = {name: parameter.numpy() for name, parameter in learned(model).items()}
    save_checkpoint(path, Checkpoint("gpt", config.to_json(), {}, {}, 1, None, None, "", state, {}, facts))
    return model(Tensor(IDS)).numpy()


def logits(base: Path, adapter: Path) -> np.ndarray:
    return FAMILY.read(base, adapter).make_model()(Tensor(IDS)).numpy()


@pytest.mark.parametrize("targets", [(), ("query", "value", "0.mlp.up")], ids=["all", "some"])
@pytest.mark.parametrize("kind", BASES)
def test_an_exported_adapter_is_read_back_with_the_same_result(kind, targets, tmp_path):
    base = base_folder(kind, tmp_path / kind)
    expected = our_adapter(base, tmp_path / "a.safetensors", targets)
    np.testing.assert_allclose(logits(base, tmp_path / "a.safetensors"), expected, atol=1e-4)
    assert export.main([str(tmp_path / "a.safetensors"), str(tmp_path / "peft")]) == 0
    np.testing.assert_allclose(logits(base, tmp_path / "peft"), expected, atol=1e-4)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft calls what transformers has renamed
@pytest.mark.parametrize("kind", BASES)
def test_peft_reads_an_exported_adapter(kind, tmp_path, peft, torch, transformers):
    """With all linear maps, and with query and value of GPT-2's c_attn alone."""
    for number, targets in enumerate(((), ("query", "value"))):
        base = base_folder(kind, tmp_path / f"{kind}{number}")
        expected = our_adapter(base, tmp_path / f"{number}.safetensors", targets)
        assert export.main([str(tmp_path / f"{number}.safetensors"), str(tmp_path / f"peft{number}")]) == 0
        theirs = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        theirs = peft.PeftModel.from_pretrained(theirs, tmp_path / f"peft{number}").eval()
        with torch.no_grad():
            np.testing.assert_allclose(theirs(torch.tensor(IDS)).logits.numpy(), expected, atol=1e-4)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft calls what transformers has renamed
@pytest.mark.parametrize("kind", BASES)
def test_an_adapter_of_peft_is_read(kind, tmp_path, peft, torch, transformers):
    base = base_folder(kind, tmp_path / kind)
    names = ["c_attn", "c_proj", "c_fc"] if kind == "gpt2" else ["q_proj", "k_proj", "o_proj", "up_proj", "down_proj"]
    patterns = {"rank_pattern": {names[0]: 3}, "alpha_pattern": {names[1]: 7}}
    first, second = (name.replace("_", ".") for name in names[:2])
    dots = {"rank_pattern": {second: 3}, "alpha_pattern": {first: 7}}
    for number, settings in enumerate(({}, {"use_rslora": True, **patterns}, dots)):
        model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        settings |= {"r": 2, "lora_alpha": 3, "target_modules": names, "fan_in_fan_out": kind == "gpt2"}
        torch.manual_seed(number)
        theirs = peft.get_peft_model(model, peft.LoraConfig(init_lora_weights=False, **settings)).eval()
        theirs.save_pretrained(tmp_path / f"peft{number}")
        with torch.no_grad():
            expected = theirs(torch.tensor(IDS)).logits.numpy()
        np.testing.assert_allclose(logits(base, tmp_path / f"peft{number}"), expected, atol=1e-4)


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A base in GPT-2's layout, and an adapter of it in peft's; made once."""
    folder = tmp_path_factory.mktemp("peft")
    our_adapter(base_folder("gpt2", folder / "base"), folder / "a.safetensors", ("output", "up"))
    assert export.main([str(folder / "a.safetensors"), str(folder / "peft")]) == 0
    return folder


NAME = "base_model.model.transformer.h.0.attn.c_proj.lora_"
CHOSEN = "but adapter_config.json does not choose transformer"
NOT_SUPPORTED = [
    ({"target_modules": ["c_fc"]}, f"holds .*c_proj.lora_A.weight, {CHOSEN}"),
    ({"target_modules": ["proj"]}, CHOSEN),
    ({"exclude_modules": ["attn.c_proj"]}, CHOSEN),
    ({"layers_to_transform": [1]}, CHOSEN),
    ({"layers_pattern": "blocks"}, "layers_pattern is 'blocks', but this program supports only None"),
    ({"target_modules": r".*c_proj"}, "target_modules is '.*c_proj', but this program supports only lists of names"),
    ({"peft_type": "IA3"}, "peft_type is 'IA3', but this program supports only 'LORA'"),
    ({"use_dora": True}, "use_dora is True, a setting that this program does not support"),
    ({"bias": "all"}, "bias is 'all', but this program supports only 'none'"),
    ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
    ({"r": 3}, "c_proj has the rank 2, but adapter_config.json says 3"),
    ({"lora_alpha": float("nan")}, "lora_alpha or alpha_pattern has nan"),
    ({"rank_pattern": {"(a+)+$": 2}}, "rank_pattern is .*, but this program supports only whole names in it"),
]
HUGE = {f"{NAME}{half}.weight": np.full((2, 12) if half == "A" else (12, 2), 3e38, "f4") for half in "AB"}
NOT_FITTING = [
    ({f"{NAME}A.weight": np.ones((2, 5), "f4")}, r"as if its shape were \(12, 5\), but in its base it is \(12, 12\)"),
    ({f"{NAME}A.weight": np.full((2, 12), np.nan, "f4")}, "holds NaN or infinity"),
    (HUGE, "with its change, .* holds NaN or infinity"),
    ({f"{NAME}A.weight": np.ones((2, 12), "i4")}, "has the type int32, which is not floating-point"),
    ({f"{NAME}C.weight": np.ones((2, 12), "f4")}, "belongs to no linear map of the model"),
]
REFUSED = [(changes, {}, reason) for changes, reason in NOT_SUPPORTED] + [({}, *row) for row in NOT_FITTING]


def changed(exported: Path, folder: Path, changes: dict, others: dict) -> Path:
    """The adapter with other settings and other tensors."""
    settings = json.loads((exported / "peft" / "adapter_config.json").read_text(encoding="utf-8")) | changes
    tensors = load_file(exported / "peft" / "adapter_model.safetensors") | others
    save_file(tensors, folder / "adapter_model.safetensors")
    return write_json(folder, adapter_config=settings)


@pytest.mark.parametrize(("changes", "others", "reason"), REFUSED)
def test_what_is_not_supported_or_does_not_fit_is_named(changes, others, reason, exported, tmp_path):
    with pytest.raises(CheckpointError, match=reason):
        FAMILY.read(exported / "base", changed(exported, tmp_path, changes, others))


SAME = [{"target_modules": names} for names in ("all-linear", ["c_proj", "mlp.c_fc"])]
SAME += [{"layers_to_transform": [0, 1], "layers_pattern": "h"}, {"exclude_modules": ["c_attn"]}]


@pytest.mark.parametrize("changes", SAME)
def test_the_linear_maps_are_chosen_as_in_peft(changes, exported, tmp_path):
    folders = (changed(exported, tmp_path, changes, {}), exported / "peft")
    np.testing.assert_array_equal(*(logits(exported / "base", folder) for folder in folders))


def test_an_adapter_needs_its_base_and_its_weights(exported, tmp_path):
    with pytest.raises(CheckpointError, match=r"is an adapter: name its base too, as in python sample\.py BASE"):
        FAMILY.read(exported / "peft")
    (tmp_path / "adapter_config.json").write_bytes((exported / "peft" / "adapter_config.json").read_bytes())
    with pytest.raises(CheckpointError, match=r"there is no .*adapter_model\.safetensors, the only supported format"):
        FAMILY.read(exported / "base", tmp_path)
