"""ViT in Hugging Face's layout, in both directions: equal to transformers, and refused where it is another model."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

import sample
from extra.encoders.export import export, main
from extra.encoders.family import VIT
from extra.encoders.looking import as_input, asked_picture, small
from extra.encoders.vit import ViT, ViTConfig
from extra.pretrained.vit import LAYOUT
from extra.tokenizers.labels import LabelTokenizer
from tests.extra.pretrained.equal import assert_equal
from tests.lively import lively
from tinygrad_lite import Tensor
from tinygrad_lite.errors import CheckpointError, CorpusError, OptionError
from training.family import Trained

SETTINGS = {
    **{"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20, "image_size": 8},
    **{"patch_size": 4, "num_channels": 3, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1},
}
NAMES = {"0": "cat", "1": "crane", "2": "dog", "3": "crane"}
KINDS = [{}, {"num_channels": 1, "patch_size": 2, "layer_norm_eps": 0.1}, {"patch_size": 8, "num_attention_heads": 1}]


def folder_with(path: Path, **changes) -> Path:
    """A folder with random weights, in which every number matters; None omits a setting."""
    settings = {**SETTINGS, "model_type": "vit", "architectures": ["ViTForImageClassification"], "id2label": NAMES}
    (path / "config.json").write_text(json.dumps({k: v for k, v in (settings | changes).items() if v is not None}))
    save_file(LAYOUT.to_theirs(lively(lambda: ViT(LAYOUT.own_config(settings)), "float32")), path / "model.safetensors")
    return path


def made(**settings) -> Trained:
    """A ViT of ours with random weights."""
    small = {"vocab_size": 3, "image_size": 8, "channels": 3, "n_layer": 2, "n_head": 2, "n_embd": 12}
    config = ViTConfig(**small | settings)
    weights = lively(lambda: ViT(config), "float32").state_dict()
    return Trained(Path("file"), "a ViT", ViT, config, LabelTokenizer(["cat", "dog", "newt"]), weights)


def assert_same(model: ViT, theirs) -> None:
    torch = pytest.importorskip("torch")
    pictures = np.random.default_rng(3).uniform(-1, 1, (2, 8, 8, model.config.channels)).astype("float32")
    with torch.no_grad():
        expected = theirs(torch.tensor(pictures.transpose(0, 3, 1, 2))).logits.numpy()
    np.testing.assert_allclose(model(Tensor(pictures)).numpy(), expected, atol=2e-5)


@pytest.mark.torch
@pytest.mark.parametrize("changes", KINDS)
def test_transformers_computes_the_same(changes, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("PIL")  # which ViTImageProcessor needs
    config = transformers.ViTConfig(**SETTINGS | changes, id2label=NAMES)
    theirs = transformers.ViTForImageClassification(config).eval()
    for number, parameter in enumerate(theirs.parameters()):
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(number))
    theirs.save_pretrained(tmp_path)
    transformers.ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(tmp_path)
    trained = VIT.load(tmp_path)
    assert trained.tokenizer.labels == ["cat", "crane (1)", "dog", "crane (3)"]
    assert_same(trained.make_model(), theirs)


@pytest.mark.torch
@pytest.mark.parametrize("settings", [{}, {"channels": 1, "patch_size": 2, "n_inner": 20, "norm_eps": 1e-3}])
def test_transformers_computes_the_same_for_an_exported_model(settings, tmp_path):
    transformers = pytest.importorskip("transformers")
    trained = made(**settings)
    assert export(trained, tmp_path / "folder") == "ViTForImageClassification"
    kind = transformers.ViTForImageClassification
    theirs, report = kind.from_pretrained(tmp_path / "folder", output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not report["missing_keys"]
    assert theirs.config.id2label == {0: "cat", 1: "dog", 2: "newt"}
    assert theirs.config.label2id == {"cat": 0, "dog": 1, "newt": 2}
    assert_same(trained.make_model(), theirs.eval())


def test_an_exported_model_is_read_back_unchanged(tmp_path):
    trained = made(n_inner=20)
    export(trained, tmp_path / "first")
    assert main([str(tmp_path / "first"), str(tmp_path / "second")]) == 0
    assert_equal(VIT.load(tmp_path / "second"), trained)


@pytest.mark.parametrize(("setting", "allowed"), [({"positions": "2d"}, "1d"), ({"pooling": "mean"}, "cls")])
def test_a_setting_that_the_layout_lacks_is_named(setting, allowed, tmp_path):
    (name, value), *_ = setting.items()
    message = f"the model has {name} {value}, but .* allows only {allowed}: train one with --{name} {allowed}"
    with pytest.raises(CheckpointError, match=message):
        export(made(**setting), tmp_path / "folder")


OTHER_MODELS = [
    ({"architectures": ["ViTForMaskedImageModeling"]}, "supports only ViTForImageClassification"),
    ({"hidden_act": "gelu_new"}, "hidden_act is 'gelu_new', but this program supports only 'gelu'"),
    ({"qkv_bias": False}, "qkv_bias is False, but this program supports only True"),
    ({"layerscale_value": 1.0}, "layerscale_value is 1.0, a setting that this program does not know"),
    ({"problem_type": "multi_label_classification"}, "problem_type is 'multi_label_classification', but this"),
    ({"patch_size": None}, "patch_size is missing, which a vit needs"),
    ({"image_size": [8, 8]}, "image_size cannot be"),
    ({"patch_size": 3}, "image_size 8 is not a multiple of patch_size 3"),
    ({"id2label": {"0": "cat"}}, r"classifier\.weight has the shape \(4, 12\), config\.json says \(1, 12\)"),
]


PREPARED = [
    *(({"image_mean": mean}, "image_mean is .* supports only") for mean in ([0.485, 0.456, 0.406], {})),
    ({"image_std": 0.2}, "image_std is .* supports only"),
    ({"do_normalize": False}, "do_normalize is .* supports only"),
    ({"do_center_crop": True}, "do_center_crop is "),
    ({"do_resize": False}, "do_resize is "),
    *(({"size": size}, "size is ") for size in ({"shortest_edge": 8}, 9, None)),
    ({"resample": 9}, "resample is "),
]


REFUSED = [(changes, {}, sentence) for changes, sentence in OTHER_MODELS]
REFUSED += [({}, preparation, rf"preprocessor_config\.json: {reason}") for preparation, reason in PREPARED]


@pytest.mark.parametrize(("changes", "preparation", "sentence"), REFUSED)
def test_another_model_or_another_preparation_of_pictures_is_refused(changes, preparation, sentence, tmp_path):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": 8} | preparation))
    with pytest.raises(CheckpointError, match=sentence):
        VIT.load(folder_with(tmp_path, **changes))


@pytest.mark.torch
@pytest.mark.parametrize("settings", [{}, {"resample": 0}, {"resample": 3, "do_center_crop": None}])
def test_a_picture_is_scaled_as_in_transformers(settings, tmp_path):
    transformers, image = pytest.importorskip("transformers"), pytest.importorskip("PIL.Image")
    size = {"size": {"height": 8, "width": 8}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings | size))
    pixels = np.random.default_rng(5).integers(0, 256, (30, 50, 3), np.uint8)
    image.fromarray(pixels).save(tmp_path / "wide.png")
    trained = VIT.load(folder_with(tmp_path))
    ours, _ = asked_picture(SimpleNamespace(image=str(tmp_path / "wide.png")), trained)
    theirs = transformers.ViTImageProcessorPil.from_pretrained(tmp_path)(image.fromarray(pixels), return_tensors="np")
    expected = theirs["pixel_values"][0].transpose(1, 2, 0)
    np.testing.assert_allclose(as_input(trained.make_model(), ours).numpy()[0], expected, atol=1e-5)


def test_sample_looks_at_a_picture_in_colour(workplace, capsys):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(4).integers(0, 256, (8, 8, 3), np.uint8)
    image.fromarray(pixels).save("picture.png")
    Path("model").mkdir()
    trained = VIT.load(folder_with(Path("model")))
    logits = trained.make_model()(Tensor(pixels[None].astype("float32") / 127.5 - 1)).numpy()[0]
    assert sample.main(["model", "--image", "picture.png", "--answers", "1"]) == 0
    assert capsys.readouterr().out.split(maxsplit=1)[1] == trained.tokenizer.labels[logits.argmax()] + "\n"
    assert sample.main(["model", "--image", "picture.png", "--explain", "page.html"]) == 0
    with pytest.raises(CorpusError, match="test:1: this model has no test pictures here: name a PNG or JPEG file"):
        sample.main(["model", "--image", "test:1"])


def test_a_large_picture_is_printed_small():
    picture = np.kron(np.arange(9).reshape(3, 3), np.ones((30, 30)))[..., None].repeat(3, axis=-1)
    np.testing.assert_array_equal(small(picture), np.kron(np.arange(9).reshape(3, 3), np.ones((10, 10))))
    assert small(np.zeros((28, 28))).shape == (28, 28)


def test_a_model_of_five_colours_has_no_picture(workplace):
    export(made(channels=5), Path("model"))
    with pytest.raises(OptionError, match="has 1 or 3 numbers for each pixel, this model needs 5"):
        sample.main(["model", "--image", "picture.png"])
