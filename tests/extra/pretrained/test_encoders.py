"""BERT and ViT in Hugging Face's layout, both ways: equal to transformers, and refused where it is another model."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

import sample
from extra.encoders.bert import Bert
from extra.encoders.config import BertConfig
from extra.encoders.export import export, main
from extra.encoders.family import BERT, VIT
from extra.encoders.looking import as_input, asked_picture
from extra.encoders.reading import sentence_settings
from extra.encoders.vit import ViT, ViTConfig
from extra.family import read_any
from extra.pretrained import bert, vit
from extra.tokenizers.labels import LabelTokenizer
from extra.tokenizers.wordpiece import WordPieceTokenizer
from tests.lively import lively
from tinygrad_lite import Tensor
from tinygrad_lite.errors import CheckpointError
from training.family import Trained

WORDS = ["[PAD]", "[UNK]", "[SEP]", "[MASK]", "[CLS]", *(f"w{n}" for n in range(94))]  # not in the usual order
VOCABULARY = "".join(f"{word}\n" for word in WORDS)
SETTINGS = {
    **{"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40},
    **{"max_position_embeddings": 20, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1},
}
LABELS, PICTURES = "BertForSequenceClassification", "ViTForImageClassification"
OF_VIT = {
    **{"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20, "image_size": 8},
    **{"patch_size": 4, "num_channels": 3, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1},
}
NAMES = {"0": "cat", "1": "crane", "2": "dog", "3": "crane"}


def made(architecture: str = "BertModel", **changes) -> Trained:
    """An encoder of ours in which every number matters: no bias is 0 and no gain is 1."""
    if architecture == PICTURES:
        kind, tokenizer = ViT, LabelTokenizer(["cat", "dog", "newt"])
        sizes = {"vocab_size": 3, "image_size": 8, "channels": 3, "n_layer": 2, "n_head": 2, "n_embd": 12}
        config = ViTConfig(**sizes | changes)
    else:
        kind, tokenizer = Bert, WordPieceTokenizer(WORDS, WORDS[:5])
        specials = {name: tokenizer.specials[BertConfig.special_token(name)] for name in BertConfig.special_fields()}
        theirs = {**SETTINGS, "architectures": [architecture], "id2label": {"0": "bad", "1": "good"}}
        config = replace(bert.LAYOUT.own_config(theirs), **specials | changes)
    weights = lively(lambda: kind(config), "float32").state_dict()
    return Trained(Path("file"), "an encoder", kind, config, tokenizer, weights)


def write_settings(path: Path, settings: dict) -> Path:
    """Write config.json; None omits a setting."""
    (path / "config.json").write_text(json.dumps({k: v for k, v in settings.items() if v is not None}))
    return path


def folder_with(path: Path, weights: dict | None = None, **changes) -> Path:
    """A folder of a BERT with its vocabulary."""
    (path / "vocab.txt").write_text(VOCABULARY, encoding="utf-8")
    if weights:
        save_file(weights, path / "model.safetensors", {"format": "pt"})
    return write_settings(path, {**SETTINGS, "model_type": "bert", "architectures": ["BertModel"]} | changes)


def vit_folder(path: Path, **changes) -> Path:
    """A folder of a ViT with random weights, in which every number matters."""
    settings = {**OF_VIT, "model_type": "vit", "architectures": [PICTURES], "id2label": NAMES}
    model = lively(lambda: ViT(vit.LAYOUT.own_config(settings)), "float32")
    save_file(vit.LAYOUT.to_theirs(model), path / "model.safetensors")
    return write_settings(path, settings | changes)


def of_transformers(architecture: str, path: Path, **settings):
    """A model of transformers with random weights, which is saved with the vocabulary of a BERT."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    kind = getattr(transformers, architecture)
    theirs = kind(kind.config_class(**settings)).eval()
    for number, parameter in enumerate(theirs.parameters()):
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(number))
    theirs.save_pretrained(path)
    (path / "vocab.txt").write_text(VOCABULARY, encoding="utf-8")
    return theirs


def assert_same(model: Bert | ViT, theirs) -> None:
    """The results are equal: for pictures; or hidden states and those of all heads for a pair of texts and a text."""
    torch, rng = pytest.importorskip("torch"), np.random.default_rng(1)
    if isinstance(model, ViT):
        pictures = rng.uniform(-1, 1, (2, 8, 8, model.config.channels)).astype("float32")
        with torch.no_grad():
            found = theirs(torch.tensor(pictures.transpose(0, 3, 1, 2)))
        np.testing.assert_allclose(model(Tensor(pictures)).numpy(), found.logits.numpy(), atol=2e-5)
        return
    ids = rng.integers(5, 99, (2, 9))
    ids[1, 6:] = 0
    real, segments = ids != 0, np.arange(9)[None].repeat(2, 0) // 5
    given = {"input_ids": ids, "token_type_ids": segments, "attention_mask": real.astype(int)}
    with torch.no_grad():
        found = theirs(**{name: torch.tensor(array) for name, array in given.items()}, output_hidden_states=True)
    x = model(Tensor(ids), Tensor(segments))
    pairs = [(x.numpy()[real], found.hidden_states[-1].numpy()[real])]
    if model.config.objective == "features":
        pairs.append((model.pooled(x, Tensor(ids)).numpy(), found.pooler_output.numpy()))
    elif model.config.objective == "labels":
        pairs.append((model.label_logits(Tensor(ids), Tensor(segments)).numpy(), found.logits.numpy()))
    else:
        logits = found.prediction_logits if model.config.next_sentence else found.logits
        pairs.append((model.words(x).numpy()[real], logits.numpy()[real]))
        if model.config.next_sentence:
            pairs.append((model.next_head(model.pooled(x, Tensor(ids))).numpy(), found.seq_relationship_logits.numpy()))
    for ours, reference in pairs:
        np.testing.assert_allclose(ours, reference, atol=2e-5)


# --- reading ----------------------------------------------------------------------------------------------------------


THEIRS = [(name, "gelu") for name in bert.ARCHITECTURES]
THEIRS += [("BertForMaskedLM", name) for name in ("relu", "gelu_new")]


@pytest.mark.torch
@pytest.mark.parametrize(("architecture", "activation"), THEIRS)
def test_transformers_computes_the_same(architecture, activation, tmp_path):
    settings = SETTINGS | {"id2label": {0: "bad", 1: "fair", 2: "good"}, "hidden_act": activation}
    theirs = of_transformers(architecture, tmp_path, **settings)
    trained = BERT.load(tmp_path)
    assert (trained.config.cls, trained.config.sep) == (4, 2)
    assert trained.config.label_names == (["bad", "fair", "good"] if architecture == LABELS else [])
    assert_same(trained.make_model(), theirs)


KINDS = [{}, {"num_channels": 1, "patch_size": 2, "layer_norm_eps": 0.1}]


@pytest.mark.torch
@pytest.mark.parametrize("changes", KINDS)
def test_transformers_computes_the_same_of_pictures(changes, tmp_path, transformers, image):
    theirs = of_transformers(PICTURES, tmp_path, **OF_VIT | changes, id2label=NAMES)
    transformers.ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(tmp_path)
    trained = VIT.load(tmp_path)
    assert trained.tokenizer.labels == ["cat", "crane (1)", "dog", "crane (3)"]
    assert_same(trained.make_model(), theirs)


OF_LABELS = {"architectures": [LABELS]}
OTHER_MODELS = [
    ({"architectures": ["BertForQuestionAnswering"]}, "supports only BertModel"),
    ({"position_embedding_type": "relative_key"}, "supports only 'absolute'"),
    ({"is_decoder": True}, "supports only False"),
    ({"hidden_act": "silu"}, "hidden_act is 'silu'"),
    ({"type_vocab_size": None}, "type_vocab_size is missing"),
    ({"relative_bias": 2}, "relative_bias is 2, a setting that this program does not know"),
    (OF_LABELS | {"id2label": ["a"]}, "id2label is .* not name the labels"),
    (OF_LABELS | {"problem_type": "multi"}, "problem_type is 'multi', but .* supports only 'single_label_class"),
]


@pytest.mark.parametrize(("changes", "sentence"), OTHER_MODELS)
def test_another_model_is_refused_by_name(changes, sentence, tmp_path):
    with pytest.raises(CheckpointError, match=sentence):
        BERT.load(folder_with(tmp_path, **changes))


OTHER_VITS = [
    ({"architectures": ["ViTForMaskedImageModeling"]}, "supports only ViTForImageClassification"),
    ({"hidden_act": "gelu_new"}, "hidden_act is 'gelu_new', but this program supports only 'gelu'"),
    ({"layerscale_value": 1.0}, "layerscale_value is 1.0, a setting that this program does not know"),
    ({"problem_type": "multi_label_classification"}, "problem_type is 'multi_label_classification', but this"),
    ({"id2label": {"0": "cat"}}, r"classifier\.weight has the shape \(4, 12\), config\.json says \(1, 12\)"),
]
PREPARED = [
    ({"image_mean": [0.485, 0.456, 0.406]}, "image_mean is .* supports only"),
    ({"image_std": 0.2}, "image_std is .* supports only"),
    ({"do_normalize": False}, "do_normalize is .* supports only"),
    ({"do_center_crop": True}, "do_center_crop is "),
    *(({"size": size}, "size is ") for size in ({"shortest_edge": 8}, 9)),
]
REFUSED_VITS = [(changes, {}, sentence) for changes, sentence in OTHER_VITS]
REFUSED_VITS += [({}, preparation, rf"preprocessor_config\.json: {reason}") for preparation, reason in PREPARED]


@pytest.mark.parametrize(("changes", "preparation", "sentence"), REFUSED_VITS)
def test_another_model_or_another_preparation_of_pictures_is_refused(changes, preparation, sentence, tmp_path):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": 8} | preparation))
    with pytest.raises(CheckpointError, match=sentence):
        VIT.load(vit_folder(tmp_path, **changes))


@pytest.mark.torch
@pytest.mark.parametrize("architecture", ["BertForMaskedLM", "BertModel"])
def test_the_first_berts_files_are_read_as_transformers_reads_them(architecture, tmp_path, torch, transformers):
    """They have the names gamma and beta, and all heads of the pretraining; a model of features may lack the pooler."""
    torch.manual_seed(3)
    first = transformers.BertForPreTraining(transformers.BertConfig(**SETTINGS, initializer_range=0.3))
    weights = {}
    for name, weight in first.state_dict().items():
        if "pooler" not in name or architecture != "BertModel":
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            weights[old] = weight.numpy() + np.float32(0.01)
    weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"].copy()
    folder_with(tmp_path, weights, architectures=[architecture])
    theirs = getattr(transformers, architecture).from_pretrained(tmp_path).eval()
    model = BERT.load(tmp_path).make_model()
    if architecture == "BertModel":
        with torch.no_grad():
            theirs.pooler.dense.weight[:] = torch.tensor(model.pooler.weight.numpy())
            theirs.pooler.dense.bias[:] = torch.tensor(model.pooler.bias.numpy())
    assert_same(model, theirs)


# --- export -----------------------------------------------------------------------------------------------------------


EVERY = [(name, {}) for name in bert.ARCHITECTURES]
EXPORTED = [*EVERY, (PICTURES, {"channels": 1, "patch_size": 2, "n_inner": 20, "norm_eps": 1e-3})]
EXPORTED += [("BertForMaskedLM", {"activation": name}) for name in ("relu", "gelu_tanh")]


@pytest.mark.parametrize(("architecture", "settings"), [*EVERY, (PICTURES, {"n_inner": 20})])
def test_an_exported_model_is_read_back_unchanged(architecture, settings, tmp_path, ran):
    trained = made(architecture, **settings)
    assert export(trained, tmp_path / "first") == architecture
    assert f"in the layout of {architecture} to" in ran(main, tmp_path / "first", tmp_path / "second").err
    found = read_any(tmp_path / "second", (BERT, VIT))
    assert (found.config, found.tokenizer.to_json()) == (trained.config, trained.tokenizer.to_json())
    assert found.weights.keys() == trained.weights.keys()
    assert all((found.weights[name] == array).all() for name, array in trained.weights.items())
    assert (architecture == PICTURES) != (tmp_path / "second" / "vocab.txt").exists()


@pytest.mark.torch
@pytest.mark.parametrize("tied", [True, False])
def test_a_bias_of_the_decoder_that_differs_has_precedence_as_in_transformers(tied, tmp_path, torch, transformers):
    made = transformers.BertForMaskedLM(transformers.BertConfig(**SETTINGS, tie_word_embeddings=tied))
    weights = {name: weight.numpy() for name, weight in made.state_dict().items()}
    weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"].copy()
    for number, name in enumerate(("cls.predictions.bias", "cls.predictions.decoder.bias")):
        weights[name] = torch.full((99,), 1.0 + number).numpy() * np.arange(99, dtype="float32")
    folder_with(tmp_path, weights, architectures=["BertForMaskedLM"], tie_word_embeddings=tied)
    theirs = transformers.BertForMaskedLM.from_pretrained(tmp_path).eval()
    assert_same(BERT.load(tmp_path).make_model(), theirs)


LACKING = [
    ("BertModel", {"norm_first": True}, "false"),
    ("BertForMaskedLM", {"activation": "relu2"}, "gelu"),
    (LABELS, {"pooling": "mean"}, "cls"),
    (PICTURES, {"positions": "2d"}, "1d"),
]


@pytest.mark.parametrize(("architecture", "setting", "allowed"), LACKING)
def test_a_setting_that_the_layout_lacks_is_named(architecture, setting, allowed, tmp_path):
    (name, value), *_ = setting.items()
    message = f"the model has {name} {value}, but the layout of {architecture} allows only (?i:{allowed}).*: train one "
    with pytest.raises(CheckpointError, match=message + f"with --{name} {allowed}"):
        export(made(architecture, **setting), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


@pytest.mark.torch
@pytest.mark.parametrize(("architecture", "settings"), EXPORTED)
def test_transformers_computes_the_same_for_an_exported_model(architecture, settings, tmp_path, transformers):
    trained = made(architecture, **settings)
    export(trained, tmp_path / "folder")
    theirs, report = getattr(transformers, architecture).from_pretrained(tmp_path / "folder", output_loading_info=True)
    assert not report["unexpected_keys"]
    assert set(report["missing_keys"]) <= {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    if architecture == PICTURES:
        assert theirs.config.id2label == {0: "cat", 1: "dog", 2: "newt"}
        assert theirs.config.label2id == {"cat": 0, "dog": 1, "newt": 2}
    assert_same(trained.make_model(), theirs.eval())


# --- vectors of sentences, in the layout of sentence-transformers -----------------------------------------------------


def sentence_folder(folder, pooling=None, **limits):
    trained = made("BertModel")
    for name, array in trained.weights.items():  # so that texts have vectors in different directions
        factor = 0 if name.endswith("norm.bias") else 10 if name.startswith("token_embedding") else 2
        trained.weights[name] = array * np.float32(factor)
    export(trained, folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32} | (pooling or {})))
    (folder / "sentence_bert_config.json").write_text(json.dumps(limits))
    return folder


def modes(**chosen):
    """Ways of pooling as older versions write them."""
    return {f"pooling_mode_{name}_token{'s' * (name != 'cls')}": value for name, value in chosen.items()}


POOLED = [
    (modes(cls=True, mean=False), None, True),
    (modes(cls=False, mean=True, max=False), 5, False),
    ({"pooling_mode": "cls"}, 5, True),
]


@pytest.mark.parametrize(("pooling", "longest", "cls"), POOLED)
def test_sentences_are_pooled_and_cut_as_the_folder_says(pooling, longest, cls, tmp_path, ran):
    folder = sentence_folder(tmp_path / "model", pooling, max_seq_length=longest)
    (tmp_path / "lines.txt").write_text("w1 w2 w3 w4 w5 w6\nw9 w8\n", encoding="utf-8")
    question = "w7 w1 w2 w3 w4 w5"
    said = ran(sample.main, folder, "--similar", tmp_path / "lines.txt", "--start", question).out
    printed = {line.split("  ")[2]: float(line.split()[0]) for line in said.splitlines()[1:]}
    trained = BERT.load(folder)

    def vector(text):
        inside = trained.tokenizer.encode(text)[: (longest or 20) - 2]
        ids = Tensor(np.array([[trained.config.cls, *inside, trained.config.sep]]))
        x = trained.make_model()(ids).numpy()[0]
        whole = x[0] if cls else x.mean(axis=0)
        return whole / np.sqrt(whole @ whole)

    assert printed.keys() == {"w1 w2 w3 w4 w5 w6", "w9 w8"}
    assert max(printed.values()) < 0.99
    for text, cosine in printed.items():
        assert cosine == pytest.approx(vector(text) @ vector(question), abs=6e-4)


@pytest.mark.torch
def test_a_single_label_gives_a_score(tmp_path, ran, torch):
    theirs = of_transformers(LABELS, tmp_path, **SETTINGS, num_labels=1)
    ids = torch.tensor([[4, 6, 7, 2, 8, 2]])
    with torch.no_grad():
        found = theirs(input_ids=ids, token_type_ids=torch.tensor([[0] * 4 + [1] * 2])).logits
    said = ran(sample.main, tmp_path, "--start", "w1 w2 ||| w3").out
    assert said == f"{found.item():.4f}\tsigmoid {found.sigmoid().item():.1%}\n"


def test_small_letters_that_the_tokenizer_keeps_apart_are_refused(tmp_path):
    folder = sentence_folder(tmp_path / "model", {}, do_lower_case=True)
    tokenizer = BERT.load(folder).tokenizer
    with pytest.raises(CheckpointError, match="has do_lower_case, but the tokenizer next to it keeps capitals"):
        sentence_settings(folder, tokenizer)


PROMPTED = [
    ({"prompts": {"query": "w9 ", "passage": "w8 "}, "default_prompt_name": None}, ["w9 ", "w8 "]),
    ({"prompts": {"all": "w9 ", "query": "", "document": ""}, "default_prompt_name": "all"}, ["w9 ", "w9 "]),
    ({"prompts": {"other": "w9 "}, "similarity_fn_name": "cosine"}, ["", ""]),
]


@pytest.mark.parametrize(("about", "prompts"), PROMPTED)
def test_prompts_are_read_before_the_lines_as_the_folder_says(about, prompts, tmp_path, ran):
    folder = sentence_folder(tmp_path / "model")
    (tmp_path / "lines.txt").write_text("w1 w2\nw3\n", encoding="utf-8")
    prompted = "".join(f"{prompts[1]}{line}\n" for line in ("w1 w2", "w3"))
    (tmp_path / "prompted.txt").write_text(prompted, encoding="utf-8")
    found = []
    for question, name in ((f"{prompts[0]}w4", "prompted.txt"), ("w4", "lines.txt")):
        said = ran(sample.main, folder, "--similar", tmp_path / name, "--start", question).out
        found.append([line.split()[0] for line in said.splitlines()[1:]])
        (folder / "config_sentence_transformers.json").write_text(json.dumps(about), encoding="utf-8")
    assert found[0] == found[1]


OTHER_SENTENCES = [  # how is pooled, what else the folder says, and a part of the model
    ({}, {"similarity_fn_name": "euclidean"}, "", "similarity_fn_name is 'euclidean', but .* only 'cosine'"),
    ({}, {"truncate_dim": 8}, "", "truncate_dim is 8"),
    ({"include_prompt": False}, {"prompts": {"query": "w9 "}}, "", "has include_prompt false"),
    (modes(max=True), {}, "", "has pooling_mode_max_tokens, but this program supports only"),
    (modes(mean=True, cls=True), {}, "", "has mean and cls, but"),
    ({}, {}, "2_Dense", "2_Dense is a part of the model that this program does not know"),
]


@pytest.mark.parametrize(("pooling", "about", "module", "reason"), OTHER_SENTENCES)
def test_other_settings_of_sentences_are_refused_by_name(pooling, about, module, reason, tmp_path):
    folder = sentence_folder(tmp_path / "model", pooling)
    (folder / module).mkdir(exist_ok=True)
    (folder / "config_sentence_transformers.json").write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(CheckpointError, match=reason):
        sentence_settings(folder, BERT.load(folder).tokenizer)


# --- pictures ------------------------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("settings", [{}, {"resample": 3, "do_center_crop": None}])
def test_a_picture_is_scaled_as_in_transformers(settings, tmp_path, transformers, image):
    size = {"size": {"height": 8, "width": 8}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings | size))
    pixels = np.random.default_rng(5).integers(0, 256, (30, 50, 3), np.uint8)
    image.fromarray(pixels).save(tmp_path / "wide.png")
    trained = VIT.load(vit_folder(tmp_path))
    ours, _ = asked_picture(SimpleNamespace(image=str(tmp_path / "wide.png")), trained)
    theirs = transformers.ViTImageProcessorPil.from_pretrained(tmp_path)(image.fromarray(pixels), return_tensors="np")
    expected = theirs["pixel_values"][0].transpose(1, 2, 0)
    np.testing.assert_allclose(as_input(trained.make_model(), ours).numpy()[0], expected, atol=1e-5)
