"""BERT in Hugging Face's layout, in both directions: equal to transformers, and refused where it is another model."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import sample
from extra.encoders.bert import Bert
from extra.encoders.config import BertConfig
from extra.encoders.export import export, main
from extra.encoders.family import BERT as FAMILY
from extra.encoders.reading import sentence_settings
from extra.pretrained.bert import ARCHITECTURES, LAYOUT
from extra.tokenizers.wordpiece import WordPieceTokenizer
from tests.extra.pretrained.equal import assert_equal
from tests.lively import lively
from tinygrad_lite import Tensor
from tinygrad_lite.errors import CheckpointError
from training.family import Trained

WORDS = ["[PAD]", "[UNK]", "[SEP]", "[MASK]", "[CLS]", *(f"w{n}" for n in range(94))]  # not in the usual order
SETTINGS = {
    **{"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40},
    **{"max_position_embeddings": 20, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1},
}


LABELS = {"architectures": ["BertForSequenceClassification"]}


THEIRS = [*((name, "gelu") for name in ARCHITECTURES), *(("BertForMaskedLM", name) for name in ("relu", "gelu_new"))]


@pytest.mark.torch
@pytest.mark.parametrize(("architecture", "activation"), THEIRS)
def test_transformers_computes_the_same(architecture, activation, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    settings = SETTINGS | {"id2label": {0: "bad", 1: "fair", 2: "good"}, "hidden_act": activation}
    config = transformers.BertConfig(**settings)
    theirs = getattr(transformers, architecture)(config).eval()
    for number, parameter in enumerate(theirs.parameters()):
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(number))
    theirs.save_pretrained(tmp_path)
    trained = FAMILY.load(with_words(tmp_path))
    assert (trained.config.cls, trained.config.sep) == (4, 2)
    assert trained.config.label_names == (["bad", "fair", "good"] if architecture.endswith("Classification") else [])
    assert_same(trained.make_model(), theirs)


@pytest.mark.torch
@pytest.mark.parametrize("tied", [True, False])
def test_a_bias_of_the_decoder_that_differs_has_precedence_as_in_transformers(tied, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    made = transformers.BertForMaskedLM(transformers.BertConfig(**SETTINGS, tie_word_embeddings=tied))
    weights = {name: weight.numpy() for name, weight in made.state_dict().items()}
    weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"].copy()
    for number, name in enumerate(("cls.predictions.bias", "cls.predictions.decoder.bias")):
        weights[name] = torch.full((99,), 1.0 + number).numpy() * np.arange(99, dtype="float32")
    with_words(folder_with(tmp_path, weights, architectures=["BertForMaskedLM"], tie_word_embeddings=tied))
    theirs = transformers.BertForMaskedLM.from_pretrained(tmp_path).eval()
    assert_same(FAMILY.load(tmp_path).make_model(), theirs)


def assert_same(model: Bert, theirs) -> None:
    """The hidden states and the results of all heads are equal for a pair of texts and a shorter text."""
    torch = pytest.importorskip("torch")
    ids = np.random.default_rng(1).integers(5, 99, (2, 9))
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


def folder_with(path, weights=None, **changes):
    settings = {**SETTINGS, "model_type": "bert", "architectures": ["BertModel"]} | changes
    (path / "config.json").write_text(json.dumps({k: v for k, v in settings.items() if v is not None}))
    if weights:
        save_file(weights, path / "model.safetensors", {"format": "pt"})
    return path


def with_words(path):
    (path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return path


OTHER_MODELS = [
    ({"architectures": ["BertForQuestionAnswering"]}, "supports only BertModel"),
    ({"position_embedding_type": "relative_key"}, "supports only 'absolute'"),
    ({"is_decoder": True}, "supports only False"),
    ({"hidden_act": "silu"}, "hidden_act is 'silu'"),
    ({"type_vocab_size": None}, "type_vocab_size is missing"),
    ({"num_attention_heads": 5}, "not a multiple of"),
    ({"hidden_size": -1}, "n_embd cannot be -1"),
    ({"relative_bias": 2}, "relative_bias is 2, a setting that this program does not know"),
    ({"pruned_heads": {"1": [0]}}, "pruned_heads is .*, a setting that this program does not know"),
    *((LABELS | {"id2label": names}, "id2label is .* not name the labels") for names in (["a"], 5)),
    (LABELS | {"id2label": {"0": "a", "1": "b|c"}}, r"no name with \|"),
    (LABELS | {"problem_type": "multi"}, "problem_type is 'multi', but .* supports only 'single_label_class"),
]


@pytest.mark.parametrize(("changes", "sentence"), OTHER_MODELS)
def test_another_model_is_refused_by_name(changes, sentence, tmp_path):
    with pytest.raises(CheckpointError, match=sentence):
        FAMILY.load(folder_with(tmp_path, **changes))


@pytest.mark.torch
@pytest.mark.parametrize("architecture", ["BertForMaskedLM", "BertModel"])
def test_the_first_berts_files_are_read_as_transformers_reads_them(architecture, tmp_path):
    """They have the names gamma and beta, and all heads of the pretraining; a model of features may lack the pooler."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(3)
    made = transformers.BertForPreTraining(transformers.BertConfig(**SETTINGS, initializer_range=0.3))
    weights = {}
    for name, weight in made.state_dict().items():
        if "pooler" not in name or architecture != "BertModel":
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            weights[old] = weight.numpy() + np.float32(0.01)
    weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"].copy()
    with_words(folder_with(tmp_path, weights, architectures=[architecture]))
    theirs = getattr(transformers, architecture).from_pretrained(tmp_path).eval()
    model = FAMILY.load(tmp_path).make_model()
    if architecture == "BertModel":
        with torch.no_grad():
            theirs.pooler.dense.weight[:] = torch.tensor(model.pooler.weight.numpy())
            theirs.pooler.dense.bias[:] = torch.tensor(model.pooler.bias.numpy())
    assert_same(model, theirs)


def test_settings_that_change_no_result_pass():
    more = {"pruned_heads": {}, "output_past": True, "auto_map": {"AutoModel": "a.B"}, "unsloth_fixed": True}
    more |= {"problem_type": "multi_label_classification", "task_specific_params": {"x": 1}, "max_length": 20}
    assert LAYOUT.own_config(SETTINGS | more) == LAYOUT.own_config(SETTINGS)


# --- export -----------------------------------------------------------------------------------------------------------


def made(architecture: str = "BertModel", **changes) -> Trained:
    """A BERT of ours in which every number matters: no bias is 0 and no gain is 1."""
    tokenizer = WordPieceTokenizer(WORDS, WORDS[:5])
    specials = {name: tokenizer.specials[BertConfig.special_token(name)] for name in BertConfig.special_fields()}
    theirs = {**SETTINGS, "architectures": [architecture], "id2label": {"0": "bad", "1": "good"}}
    config = replace(LAYOUT.own_config(theirs), **specials | changes)
    weights = lively(lambda: Bert(config), "float32").state_dict()
    return Trained(Path("file"), "a BERT", Bert, config, tokenizer, weights)


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_an_exported_model_is_read_back_unchanged(architecture, tmp_path, capsys):
    trained = made(architecture)
    assert export(trained, tmp_path / "first") == architecture
    assert main([str(tmp_path / "first"), str(tmp_path / "second")]) == 0
    assert f"in the layout of {architecture} to" in capsys.readouterr().err
    found = FAMILY.load(tmp_path / "second")
    assert_equal(found, trained)
    assert "vocab.txt" in {path.name for path in (tmp_path / "second").iterdir()}


LACKING = [
    ("BertModel", {"norm_first": True}, "false"),
    ("BertForMaskedLM", {"activation": "relu2"}, "gelu"),
    ("BertForSequenceClassification", {"pooling": "mean"}, "cls"),
]


@pytest.mark.parametrize(("architecture", "setting", "allowed"), LACKING)
def test_a_setting_that_bert_lacks_is_named(architecture, setting, allowed, tmp_path):
    (name, value), *_ = setting.items()
    message = f"the model has {name} {value}, but the layout of {architecture} allows only .*: train one with --{name} "
    with pytest.raises(CheckpointError, match=message + allowed):
        export(made(architecture, **setting), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("setting", [{"objective": "labels", "next_sentence": True}, {"pooling": "mean"}])
def test_settings_of_a_head_that_is_absent_do_not_matter(setting, tmp_path):
    export(made("BertForMaskedLM", **setting), tmp_path / "folder")


EXPORTED = [*((name, "gelu") for name in ARCHITECTURES), *(("BertForMaskedLM", name) for name in ("relu", "gelu_tanh"))]


@pytest.mark.torch
@pytest.mark.parametrize(("architecture", "activation"), EXPORTED)
def test_transformers_computes_the_same_for_an_exported_model(architecture, activation, tmp_path):
    transformers = pytest.importorskip("transformers")
    trained = made(architecture, activation=activation)
    export(trained, tmp_path / "folder")
    theirs, report = getattr(transformers, architecture).from_pretrained(tmp_path / "folder", output_loading_info=True)
    assert not report["unexpected_keys"]
    assert set(report["missing_keys"]) <= {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
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
    ({}, 7, False),
    ({"pooling_mode": "cls"}, 5, True),
]


@pytest.mark.parametrize(("pooling", "longest", "cls"), POOLED)
def test_sentences_are_pooled_and_cut_as_the_folder_says(pooling, longest, cls, tmp_path, capsys):
    folder = sentence_folder(tmp_path / "model", pooling, max_seq_length=longest)
    (tmp_path / "lines.txt").write_text("w1 w2 w3 w4 w5 w6\nw9 w8\n", encoding="utf-8")
    question = "w7 w1 w2 w3 w4 w5"
    assert sample.main([str(folder), "--similar", str(tmp_path / "lines.txt"), "--start", question]) == 0
    printed = {line.split("  ")[2]: float(line.split()[0]) for line in capsys.readouterr().out.splitlines()[1:]}
    trained = FAMILY.load(folder)

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
def test_a_single_label_gives_a_score(tmp_path, capsys):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(4)
    config = transformers.BertConfig(**SETTINGS, num_labels=1, initializer_range=0.5)
    theirs = transformers.BertForSequenceClassification(config).eval()
    theirs.save_pretrained(with_words(tmp_path))
    assert sample.main([str(tmp_path), "--start", "w1 w2 ||| w3"]) == 0
    ids = [4, 6, 7, 2, 8, 2]
    with torch.no_grad():
        found = theirs(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([[0] * 4 + [1] * 2])).logits
    assert capsys.readouterr().out == f"{found.item():.4f}\tsigmoid {found.sigmoid().item():.1%}\n"


def test_small_letters_that_the_tokenizer_keeps_apart_are_refused(tmp_path):
    folder = sentence_folder(tmp_path / "model", {}, do_lower_case=True)
    tokenizer = FAMILY.load(folder).tokenizer
    tokenizer.lowercase = True  # then it makes no difference
    sentence_settings(folder, tokenizer)
    tokenizer.lowercase = False
    with pytest.raises(CheckpointError, match="has do_lower_case, but the tokenizer next to it keeps capitals"):
        sentence_settings(folder, tokenizer)


PROMPTED = [
    ({"prompts": {"query": "w9 ", "document": "w8 "}}, ["w9 ", "w8 "]),
    ({"prompts": {"query": "w9 ", "passage": "w8 "}, "default_prompt_name": None}, ["w9 ", "w8 "]),
    ({"prompts": {"all": "w9 ", "query": "", "document": ""}, "default_prompt_name": "all"}, ["w9 ", "w9 "]),
    ({"prompts": {"other": "w9 "}, "similarity_fn_name": "cosine"}, ["", ""]),
    ({}, ["", ""]),
]


@pytest.mark.parametrize(("about", "prompts"), PROMPTED)
def test_prompts_are_read_before_the_lines_as_the_folder_says(about, prompts, tmp_path, capsys):
    folder = sentence_folder(tmp_path / "model")
    (tmp_path / "lines.txt").write_text("w1 w2\nw3\n", encoding="utf-8")
    prompted = "".join(f"{prompts[1]}{line}\n" for line in ("w1 w2", "w3"))
    (tmp_path / "prompted.txt").write_text(prompted, encoding="utf-8")
    found = []
    for question, name in ((f"{prompts[0]}w4", "prompted.txt"), ("w4", "lines.txt")):
        assert sample.main([str(folder), "--similar", str(tmp_path / name), "--start", question]) == 0
        found.append([line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]])
        (folder / "config_sentence_transformers.json").write_text(json.dumps(about), encoding="utf-8")
    assert found[0] == found[1]


REFUSED_PROMPTS = [
    (
        {"similarity_fn_name": "euclidean"},
        {},
        "similarity_fn_name is 'euclidean', but .* only 'cosine'",
    ),
    ({"truncate_dim": 8}, {}, "truncate_dim is 8"),
    ({"prompts": {"query": 3}}, {}, "prompts are not texts by their names"),
    ({"prompts": {"query": "w9 "}}, {"include_prompt": False}, "has include_prompt false"),
]


@pytest.mark.parametrize(("about", "pooling", "reason"), REFUSED_PROMPTS)
def test_other_settings_of_sentences_are_refused(about, pooling, reason, tmp_path):
    folder = sentence_folder(tmp_path / "model", pooling)
    (folder / "config_sentence_transformers.json").write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(CheckpointError, match=reason):
        sentence_settings(folder, FAMILY.load(folder).tokenizer)


OTHER_POOLINGS = [
    (modes(max=True), "1_Pooling", "has pooling_mode_max_tokens, but this program supports only"),
    (modes(mean=True, cls=True), "1_Pooling", "has mean and cls, but"),
    ({"pooling_mode": "max"}, "1_Pooling", "has max, but this program supports only cls or mean"),
    ({}, "2_Dense", "2_Dense is a part of the model that this program does not know"),
]


@pytest.mark.parametrize(("pooling", "module", "reason"), OTHER_POOLINGS)
def test_another_pooling_is_refused_by_name(pooling, module, reason, tmp_path):
    folder = sentence_folder(tmp_path / "model", pooling)
    (folder / module).mkdir(exist_ok=True)
    with pytest.raises(CheckpointError, match=reason):
        sentence_settings(folder, FAMILY.load(folder).tokenizer)
