"""A GGUF file is converted to a folder in Hugging Face's layout: a made-up small model, and SmolLM2 itself."""

import json

import numpy as np
import pytest

from extra.chat import smollm2
from extra.chat.chat import ChatFormat
from extra.families import GPT as FAMILY
from extra.gpt.trained import load_trained
from extra.pretrained.gguf_file import convert, main, their_names, tokenizer
from extra.pretrained.read import load_pretrained
from extra.tokenizers.huggingface import HFTokenizer, byte_characters
from gpt.model import GPT
from tests.extra.pretrained.gpt2_folders import IDS, greedy
from tests.extra.pretrained.test_llama import LLAMA, forward, random_weights
from tinygrad_lite.errors import CheckpointError, UserError
from tinygrad_lite.tensor import Tensor

# 4-bit numbers are stored in blocks of 32.
SETTINGS = LLAMA | {"hidden_size": 64, "intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
SETTINGS |= {"vocab_size": 262, "tie_word_embeddings": True, "rope_theta": 500.0}
# The settings of a GGUF file, and Hugging Face's.
THEIR_SETTINGS = {"context_length": "max_position_embeddings", "embedding_length": "hidden_size"}
THEIR_SETTINGS |= {"feed_forward_length": "intermediate_size", "block_count": "num_hidden_layers"}
THEIR_SETTINGS |= {"head_count": "num_attention_heads", "head_count_kv": "num_key_value_heads"}
THEIR_SETTINGS |= {"layer_norm_rms_eps": "rms_norm_eps", "rope_freq_base": "rope_theta", "vocab_size": "vocab_size"}
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ d", "Ġd e", "Ġ Ġ"]


def permuted(matrix, n_head):
    """The rows in the order of llama.cpp's converter for Llama."""
    shape = (n_head, 2, len(matrix) // n_head // 2, *matrix.shape[1:])
    return matrix.reshape(shape).swapaxes(1, 2).reshape(matrix.shape)


def write_gguf(path, settings=SETTINGS, pre="smollm", added=(), without=(), **more):
    """Write a GGUF file of random weights; returns them rounded to 4 bits, under Hugging Face's names."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "llama")
    for name, theirs in THEIR_SETTINGS.items():
        if name not in without:
            getattr(writer, f"add_{name}")(settings[theirs])
    for name, value in more.items():
        writer.add_float32(f"llama.{name}", value)
    tokens = [*SPECIALS, *byte_characters(), *(merge.replace(" ", "") for merge in MERGES)]
    about = {"tokenizer_model": "gpt2", "tokenizer_pre": pre, "token_list": tokens, "token_merges": MERGES}
    about |= {"token_types": [3] * 3 + [1] * (len(tokens) - 3), "bos_token_id": 1, "eos_token_id": 2}
    for name, value in (about | {"chat_template": "{{ messages }}"} | dict(added)).items():
        getattr(writer, f"add_{name}")(value)
    short = {theirs: name for name, theirs in their_names(gguf, settings["num_hidden_layers"]).items()}
    heads = {"q_proj": settings["num_attention_heads"], "k_proj": settings["num_key_value_heads"]}
    rounded = {}
    for name, array in random_weights(settings).items():
        kind = next((n_head for part, n_head in heads.items() if part in name), 0)
        array = array.astype(np.float32)
        if array.ndim == 2:
            packed = gguf.quantize(permuted(array, kind) if kind else array, gguf.GGMLQuantizationType.Q4_1)
            writer.add_tensor(short[name], packed, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
            array = gguf.dequantize(packed, gguf.GGMLQuantizationType.Q4_1)
            # Undone in another way than in the library.
            if kind:
                order = permuted(np.arange(len(array))[:, None], kind)[:, 0]
                array = array[np.argsort(order)]
        else:
            writer.add_tensor(short[name], array)
        rounded[name] = array
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return rounded


def converted(folder, **changes):
    """The folder that a small GGUF file is converted to."""
    folder.mkdir()
    write_gguf(folder.with_suffix(".gguf"), **changes)
    convert(folder.with_suffix(".gguf"), folder)
    return folder


def test_a_small_model_is_converted(tmp_path, tokenizers):
    weights, folder = write_gguf(tmp_path / "same.gguf"), converted(tmp_path / "small")
    title, config, found, tokenizer = load_pretrained(folder, FAMILY.layouts)
    assert (title, config.tie_weights, config.n_kv_head, config.rope_theta) == ("Llama", True, 2, 500.0)
    model = GPT.from_weights(config, found).eval()
    settings = SETTINGS | {"rms_norm_eps": float(np.float32(SETTINGS["rms_norm_eps"]))}
    exact = {name: array.astype(np.float64) for name, array in weights.items()}
    logits = model(Tensor(np.array([IDS]))).numpy()[0]
    np.testing.assert_allclose(logits, forward(exact, settings, IDS), rtol=0, atol=1e-5)

    assert tokenizer.specials == {name: number for number, name in enumerate(SPECIALS)}
    words = [[tokenizer.render(token) for token in tokenizer.encode(text)] for text in (" den  12", "<|im_end|>")]
    assert (words[0], len(words[1])) == ([" de", "n", "  ", "1", "2"], 10)
    form = ChatFormat.from_folder(folder, tokenizer)
    assert (form.template, form.ends) == ("{{ messages }}", {2})
    assert form.named == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}


def test_every_end_in_a_file_ends_a_turn_and_settings_that_follow_from_others_may_be_missing(tmp_path, tokenizers):
    settings = SETTINGS | {"num_key_value_heads": SETTINGS["num_attention_heads"], "rope_theta": 10000.0}
    lacking = ("head_count_kv", "vocab_size", "rope_freq_base")
    one = converted(tmp_path / "a", settings=settings, added={"eot_token_id": 0, "eom_token_id": 7})
    two = converted(tmp_path / "b", settings=settings, without=lacking)
    assert ChatFormat.from_folder(one, HFTokenizer.from_folder(one)).ends == {0, 2, 7}
    assert load_pretrained(one, FAMILY.layouts)[1] == load_pretrained(two, FAMILY.layouts)[1]


TOKENIZERS = [("llama-bpe", {}, True, True), ("llama-bpe", {"add_bos_token": False}, True, False)]
TOKENIZERS += [("smollm", {}, False, False), ("gpt-2", {"add_bos_token": True}, False, True)]


@pytest.mark.parametrize(("pre", "more", "ignores", "begins"), TOKENIZERS)
def test_the_tokenizer_is_that_of_llama_cpp(pre, more, ignores, begins):
    fields = {"model": "gpt2", "pre": pre, "tokens": ["<b>", "a"], "token_type": [3, 1], "merges": []}
    fields |= {"bos_token_id": 0} | more
    found = tokenizer("a.gguf", lambda key, default=None: fields.get(key.removeprefix("tokenizer.ggml."), default))
    assert found["model"]["ignore_merges"] is ignores
    package = pytest.importorskip("tokenizers").Tokenizer.from_str(json.dumps(found))
    assert package.encode("a").ids == ([0, 1] if begins else [1])


def test_a_file_is_converted_by_a_command(tmp_path, ran):
    write_gguf(tmp_path / "a.gguf")
    assert "a GGUF file of a Llama; converted to" in ran(main, tmp_path / "a.gguf", tmp_path / "a").err
    assert load_pretrained(tmp_path / "a", FAMILY.layouts)[0] == "Llama"
    with pytest.raises(CheckpointError, match=r"there is no file .*b\.gguf"):
        main([str(tmp_path / "b.gguf"), str(tmp_path / "b")])


OTHERS = [
    ({"without": ("embedding_length",)}, r"a\.gguf lacks llama\.embedding_length, which a Llama needs"),
    ({"pre": "bert"}, "has a tokenizer of the kind gpt2, bert, but only gpt2 can be"),
    ({"logit_scale": 2.0}, r"llama\.logit_scale is a setting that this program does not know"),
]


@pytest.mark.parametrize(("changes", "reason"), OTHERS)
def test_another_kind_of_file_is_refused(changes, reason, tmp_path):
    with pytest.raises(CheckpointError, match=reason):
        converted(tmp_path / "a", **changes)


# --- SmolLM2 --------------------------------------------------------------------------------------------------------


def test_smollm2_without_packages_gives_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(smollm2.importlib.util, "find_spec", lambda name: None if name == "jinja2" else name)
    with pytest.raises(UserError, match=r'smollm2 needs the package jinja2, .*: pip install -e "\.\[chat\]"'):
        FAMILY.read(smollm2.Path("smollm2"))


SENTENCES = [
    "The quick brown fox doesn't jump over 13 lazy dogs.\n\n  It's 1999!\tI'LL see:  {'a': 3.14159}",
    "Habe nun, ach! Philosophie,\r\nJuristerei und Medizin, und leider auch Theologie durchaus studiert.",
    "Größe, Maß & Übermut – »schön« … 25 €   und   ١٢٣ 数学 🙂",
]


@pytest.fixture(scope="module")
def real(gguf, tokenizers):
    return load_trained(smollm2.fetched_folder())


@pytest.mark.network
@pytest.mark.torch
def test_smollm2_equals_that_of_transformers(real, transformers, torch):
    """Their model is read from the folder that we wrote, their tokenizer from the same tokenizer.json.

    Logits are compared in float64, where only their angles of rotary positions are rounded to float32.
    """
    load = transformers.AutoModelForCausalLM.from_pretrained
    theirs, exact = (load(real.path, dtype=dtype).eval() for dtype in (torch.float32, torch.float64))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(real.path / "tokenizer.json"))
    model, ours = real.make_model(), real.make_model().to("cpu", "float64")
    for text in SENTENCES:
        ids = real.tokenizer.encode(text)
        assert (ids, real.tokenizer.decode(ids)) == (tokenizer(text)["input_ids"], text)
        with torch.no_grad():
            expected = exact(torch.tensor([ids])).logits[0].numpy()
            settings = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
            written = theirs.generate(torch.tensor([ids]), max_new_tokens=20, **settings)[0].tolist()
        np.testing.assert_allclose(ours(Tensor(np.array([ids]))).numpy()[0], expected, rtol=0, atol=5e-5)
        assert greedy(model, ids, 20) == written[len(ids) :]


@pytest.mark.network
@pytest.mark.torch
def test_smollm2s_messages_equal_those_of_transformers(real, jinja2, transformers):
    about = json.loads((real.path / "tokenizer_config.json").read_text(encoding="utf-8"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(real.path / "tokenizer.json"), **about)
    messages = [{"role": "user", "content": text} for text in SENTENCES]
    messages.insert(1, {"role": "assistant", "content": "Gern."})
    expected = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert ChatFormat.from_folder(real.path, real.tokenizer).encode(messages) == expected
