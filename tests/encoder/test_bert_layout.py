"""BERT in Hugging Face's layout: equal to transformers, and refused where it is another model."""

import json

import numpy as np
import pytest

from encoder.bert import Bert
from encoder.bert_layout import ARCHITECTURES, own_config, their_config
from encoder.task import load_trained
from tinygrad_lite import Tensor
from tinygrad_lite.cli.errors import CheckpointError

WORDS = ["[PAD]", "[UNK]", "[SEP]", "[MASK]", "[CLS]", *(f"w{n}" for n in range(94))]  # not in the usual order
SETTINGS = {
    **{"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40},
    **{"max_position_embeddings": 20, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1},
}


@pytest.mark.torch
@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_transformers_computes_the_same(architecture, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.BertConfig(**SETTINGS, id2label={0: "bad", 1: "fair", 2: "good"})
    theirs = getattr(transformers, architecture)(config).eval()
    for number, parameter in enumerate(theirs.parameters()):
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(number))
    theirs.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    trained = load_trained(tmp_path)
    assert (trained.config.cls, trained.config.sep) == (4, 2)
    model = trained.make_model()

    ids = np.random.default_rng(1).integers(5, 99, (2, 9))
    ids[1, 6:] = 0
    real, segments = ids != 0, np.arange(9)[None].repeat(2, 0) // 5
    given = {"input_ids": ids, "token_type_ids": segments, "attention_mask": real.astype(int)}
    with torch.no_grad():
        found = theirs(**{name: torch.tensor(array) for name, array in given.items()}, output_hidden_states=True)
    x = model(Tensor(ids), Tensor(segments))
    pairs = [(x.numpy()[real], found.hidden_states[-1].numpy()[real])]
    if architecture == "BertModel":
        pairs.append((model.pooled(x, Tensor(ids)).numpy(), found.pooler_output.numpy()))
    elif architecture == "BertForSequenceClassification":
        assert model.config.label_names == ["bad", "fair", "good"]
        pairs.append((model.label_logits(Tensor(ids), Tensor(segments)).numpy(), found.logits.numpy()))
    else:
        logits = found.logits if architecture == "BertForMaskedLM" else found.prediction_logits
        pairs.append((model.words(x).numpy()[real], logits.numpy()[real]))
        if architecture == "BertForPreTraining":
            pairs.append((model.next_head(model.pooled(x, Tensor(ids))).numpy(), found.seq_relationship_logits.numpy()))
    for ours, reference in pairs:
        np.testing.assert_allclose(ours, reference, atol=2e-5)


def folder_with(path, **changes):
    settings = {**SETTINGS, "model_type": "bert", "architectures": ["BertModel"]} | changes
    (path / "config.json").write_text(json.dumps({k: v for k, v in settings.items() if v is not None}))
    return path


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"architectures": ["BertForQuestionAnswering"]}, "supports only BertModel"),
        ({"position_embedding_type": "relative_key"}, "supports only 'absolute'"),
        ({"is_decoder": True}, "supports only False"),
        ({"hidden_act": "silu"}, "hidden_act is 'silu'"),
        ({"type_vocab_size": None}, "type_vocab_size is missing"),
        ({"num_attention_heads": 5}, "no multiple of"),
        ({"hidden_size": -1}, "n_embd cannot be -1"),
        ({"architectures": ["BertForSequenceClassification"], "id2label": ["a"]}, "id2label"),
    ],
)
def test_another_model_is_refused_by_name(changes, sentence, tmp_path):
    with pytest.raises(CheckpointError, match=sentence):
        load_trained(folder_with(tmp_path, **changes))


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_settings_survive_both_directions(architecture):
    config = own_config({**SETTINGS, "architectures": [architecture], "id2label": {"0": "bad", "1": "good"}})
    assert own_config(json.loads(json.dumps(their_config(config)))) == config
    assert Bert.blueprint(config).num_parameters() > 0
