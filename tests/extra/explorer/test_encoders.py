"""The page of an encoder: its numbers are NumPy's, and no text gets out of it."""

import base64
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import sample
from extra.encoders.bert import Bert
from extra.encoders.cnn import CNN, CNNConfig
from extra.encoders.config import BertConfig
from extra.encoders.family import BERT as FAMILY
from extra.encoders.family import VIT
from extra.encoders.vit import ViT, ViTConfig
from extra.encoders.words import SPECIALS
from extra.explorer import encoders as explorer
from extra.tokenizers.labels import LabelTokenizer
from tests.extra.mixers.test_seq2seq import softmax
from tests.gpt.saved_models import save
from tests.tiny_runs import made_up_text
from text.tokenizers.bpe import BPETokenizer
from tinygrad_lite import Tensor
from tinygrad_lite.errors import OptionError
from tinygrad_lite.random import keyed_rng, random_key

TOKENIZER = BPETokenizer.train(made_up_text(), 300, SPECIALS)
TEXT = "Es [MASK] der</script><b>, [MASK] er"
PICTURE = np.random.default_rng(3).integers(0, 256, (6, 6), np.uint8)


def saved(path: str, family: str, model, tokenizer) -> str:
    """Save a model with weights that are far from even, so that mistakes show."""
    weights = {n: a + 0.4 * keyed_rng(1, n).standard_normal(a.shape, np.float32) for n, a in model.state_dict().items()}
    return str(save(Path(path), family, model, weights, tokenizer, dataset="digits"))


def saved_bert(path: str = "bert.safetensors", **settings) -> str:
    special = [TOKENIZER.specials[name] for name in SPECIALS[:4]]
    settings = {"n_layer": 2, "n_head": 2, "n_embd": 12, "n_inner": 20, "block_size": 40} | settings
    with random_key(2):
        return saved(path, "bert", Bert(BertConfig(TOKENIZER.vocab_size, *special, **settings)), TOKENIZER)


def saved_vit(path: str = "vit.safetensors", **settings) -> str:
    settings = {"patch_size": 2, "n_layer": 2, "n_head": 2, "n_embd": 8} | settings
    with random_key(2):
        return saved(path, "vit", ViT(ViTConfig(3, 6, 1, **settings)), LabelTokenizer(["a", "b", "</script>"]))


def with_picture(monkeypatch) -> None:
    def asked(options, trained):
        return PICTURE, f"{options.image} of {trained.dataset}: b"

    monkeypatch.setattr(explorer, "asked_picture", asked)


def explained(path: str, *arguments: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Write the page and read it again: its data, and its arrays of float16."""
    assert sample.main([path, *arguments, "--explain", "p.html"]) == 0
    html = Path("p.html").read_text(encoding="utf-8")
    assert html.count("<script") == html.count("</script>") == len(re.findall(r"<script[ >]", html))
    blobs = dict(re.findall(r'<script type="text/plain" id="([a-z-]*)">([^<]*)</script>', html))
    kinds = {"recorded-picture": "u1"}
    arrays = {name: np.frombuffer(base64.b64decode(t), kinds.get(name, "<f2")) for name, t in blobs.items()}
    return json.loads(re.search(r'id="data">(.*?)</script>', html)[1]), arrays


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


class ByNumPy:
    """The forward pass of an encoder's blocks by the formulas, in float64."""

    def __init__(self, model):
        self.config, self.w = model.config, {n: a.astype(np.float64) for n, a in model.state_dict().items()}

    def linear(self, name, x):
        return x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def norm(self, name, x):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.config.norm_eps)
        return x * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def blocks(self, x, norm_first):
        """(T, C) -> attention (L, H, T, T), stream (L + 1, T, C), added (L, 2, T, C)."""
        attention, stream, added = [], [x], []
        for layer in range(self.config.n_layer):
            block, parts = f"blocks.{layer}", []
            for part in ("mixer", "mlp"):
                y = self.norm(f"{block}.{part}_norm", x) if norm_first else x
                if part == "mlp":
                    y = self.linear(f"{block}.mlp.down", gelu(self.linear(f"{block}.mlp.up", y)))
                else:
                    three = [self.linear(f"{block}.mixer.{name}", y) for name in ("query", "key", "value")]
                    q, k, v = np.reshape(three, (3, len(x), self.config.n_head, -1)).swapaxes(1, 2)
                    attention.append(softmax(q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])))
                    y = self.linear(f"{block}.mixer.output", (attention[-1] @ v).transpose(1, 0, 2).reshape(x.shape))
                parts.append(y)
                x = x + y if norm_first else self.norm(f"{block}.{part}_norm", x + y)
            added.append(parts)
            stream.append(x)
        return np.array(attention), np.array(stream), np.array(added)


def check_inside(data, arrays, found):
    """The page has these (attention, stream, added)."""
    attention, stream, added = found
    assert data["shape"] == list(attention.shape[:3])
    np.testing.assert_allclose(arrays["recorded-attention"].reshape(attention.shape), attention, atol=1e-3)
    np.testing.assert_allclose(data["stream"], np.linalg.norm(stream, axis=-1), rtol=1e-4)
    np.testing.assert_allclose(data["added"], np.linalg.norm(added, axis=-1), rtol=1e-4)


@pytest.mark.parametrize("norm_first", [True, False])
def test_hidden_words_and_attention_are_those_of_numpy(workplace, norm_first):
    path = saved_bert(norm_first=norm_first)
    data, arrays = explained(path, "--start", TEXT)
    model = ByNumPy(FAMILY.load(Path(path)).make_model())
    special, w = TOKENIZER.specials, model.w
    text = TEXT.replace(" [MASK]", "[MASK]")  # in byte-pair encoding a word has the blank before it
    ids = [special["[CLS]"], *TOKENIZER.encode(text, allow_special=["[MASK]"]), special["[SEP]"]]
    assert (data["ids"], "".join(data["tokens"]).replace("·", " ")) == (ids, f"[CLS]{text}[SEP]")
    x = w["token_embedding.weight"][ids] + w["position_embedding.weight"][: len(ids)] + w["segment_embedding.weight"][0]
    found = model.blocks(x if norm_first else model.norm("embedding_norm", x), norm_first)
    check_inside(data, arrays, found)

    x = model.norm("final_norm", found[1][-1]) if norm_first else found[1][-1]
    logits = model.norm("transform_norm", gelu(model.linear("transform", x))) @ w["token_embedding.weight"].T
    probabilities = softmax(logits + w["lm_head.bias"])
    probabilities[:, list(special.values())] = 0
    assert [mask["position"] for mask in data["masks"]] == [t for t, i in enumerate(ids) if i == special["[MASK]"]]
    for mask in data["masks"]:
        best = np.argsort(-probabilities[mask["position"]])[:10]
        assert [word for word, _ in mask["words"]] == [TOKENIZER.render(i).replace(" ", "·") for i in best]
        shown = [p for _, p in mask["words"]]
        np.testing.assert_allclose(shown, probabilities[mask["position"]][best], rtol=1e-3)


@pytest.mark.parametrize("text", ["Es irrt der Mensch", "Es irrt\tder Mensch"])
def test_occlusion_is_the_difference_that_one_hidden_token_makes(workplace, monkeypatch, text):
    monkeypatch.setattr(explorer, "BATCH", 3)
    path = saved_bert(objective="labels", labels="bad|</script>|good")
    data, _ = explained(path, "--start", text)
    model = FAMILY.load(Path(path)).make_model()
    assert (data["segments"][1], data["segments"][-1]) == (0, text.count("\t"))

    def by_label(ids):
        found = softmax(model.label_logits(Tensor([ids]), Tensor([data["segments"]])).numpy()[0].astype(np.float64))
        return dict(zip(model.config.label_names, found, strict=True))

    names, whole = data["labels"]["names"], by_label(data["ids"])
    assert names == sorted(whole, key=whole.get, reverse=True)
    np.testing.assert_allclose(data["labels"]["probabilities"], [whole[name] for name in names], rtol=1e-4)
    changes = []
    for t, row in enumerate(data["labels"]["hidden"]):
        if data["tokens"][t] in ("[CLS]", "[SEP]"):
            assert row is None
            continue
        hidden = by_label([*data["ids"][:t], model.config.mask, *data["ids"][t + 1 :]])
        np.testing.assert_allclose(row, [hidden[name] for name in names], rtol=1e-4)
        changes.append((abs(whole[names[0]] - hidden[names[0]]), t))
    assert (len(changes), data["start"]) == (len(data["ids"]) - 2 - text.count("\t"), max(changes)[1])


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_picture_its_attention_and_rollout_are_those_of_numpy(workplace, monkeypatch, pooling):
    with_picture(monkeypatch)
    path = saved_vit(pooling=pooling)
    data, arrays = explained(path, "--image", "test:1</script>")
    model = ByNumPy(VIT.load(Path(path)).make_model())
    pixels = PICTURE / 127.5 - 1
    x = model.linear("patch_embedding", pixels.reshape(3, 2, 3, 2).transpose(0, 2, 1, 3).reshape(9, 4))
    if pooling == "cls":
        x = np.concatenate([model.w["class_token"][None], x])
    found = model.blocks(x + model.w["position_embedding.weight"], True)
    check_inside(data, arrays, found)

    (first, second), identity = found[0].mean(1), np.eye(len(x))
    rolled = (second / 2 + identity / 2) @ (first / 2 + identity / 2)
    np.testing.assert_allclose(arrays["recorded-rollout"].reshape(rolled.shape), rolled, atol=1e-3)
    np.testing.assert_array_equal(arrays["recorded-picture"].reshape(PICTURE.shape), PICTURE)
    last = model.norm("final_norm", found[1][-1])
    probabilities = softmax(model.linear("head", last[0] if pooling == "cls" else last.mean(0)))
    order = np.argsort(-probabilities)
    assert [name for name, _ in data["classes"]] == [["a", "b", "</script>"][n] for n in order]
    np.testing.assert_allclose([p for _, p in data["classes"]], probabilities[order], rtol=1e-3)
    assert (data["about"], data["start"]) == ("test:1</script> of digits: b", 0 if pooling == "cls" else None)


def test_models_without_attention_or_with_too_much_are_refused(workplace, monkeypatch):
    with_picture(monkeypatch)
    monkeypatch.setattr(explorer, "MAX_NUMBERS", 399)
    arguments = ["--image", "test:1", "--explain", "p.html"]
    cnn = saved("cnn.safetensors", "cnn", CNN(CNNConfig(2, 6, 1, n_embd=2)), LabelTokenizer(["a", "b"]))
    refused = {cnn: "which a convolutional network lacks", saved_vit(): "has 400 attention weights; a page holds 399"}
    for path, sentence in refused.items():
        with pytest.raises(OptionError, match=sentence):
            sample.main([path, *arguments])
    assert not Path("p.html").exists()
