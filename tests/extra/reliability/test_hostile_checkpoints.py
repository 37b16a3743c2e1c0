"""Broken or malicious checkpoints: each is used as it is or refused with the reason, and does no harm.

A checkpoint that is used generates some tokens or translates a sentence; one that is resumed makes some updates.
"""

import functools
import itertools
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import sample
import train
from docs.course import check
from extra.encoders.family import BERT
from extra.families import GPT
from extra.pretrained import export
from extra.studies import scores as evaluate
from tests.extra.pretrained.gpt2_folders import byte_folder
from tests.extra.pretrained.test_llama import LLAMA3, QWEN3, llama_folder
from tests.gpt.saved_models import saved_gpt
from tests.reliability import mutations
from tests.reliability.mutations import changed, harmless, many, put_together, resident, taken_apart, traced
from tests.test_translation_scripts import run_training as train_pairs
from tests.tiny_runs import ROOT, contents, made_up_text, run_training, undone
from tests.tiny_runs import sampled as sampled_text
from text.decoding.probabilities import COLOURS
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.char import CharTokenizer
from tinygrad_lite.errors import CheckpointError, OptionError, UserError
from training.checkpoint import KEY, Checkpoint, load_checkpoint, save_checkpoint
from training.cli.console import RESET, quoted, run_command
from training.folder import RunFolder

pytestmark = pytest.mark.usefixtures("no_network")

SEED = 20240711


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The files of a run of each family, and of an adapter of the first, which it calls base.safetensors."""
    with chdir(tmp_path_factory.mktemp("runs")), undone():
        Path("text.txt").write_text(made_up_text(), encoding="utf-8")
        run_training(out_dir="gpt", max_iters=2, workers=1)
        train_pairs(out_dir="seq2seq", max_iters=2, eval_interval=2, eval_pairs=0, workers=1)
        shutil.copy("gpt/last.safetensors", "base.safetensors")
        words = ["--init_from=base.safetensors", "--text=text.txt", "--lora_rank=2", "--out_dir=adapter", "--workers=1"]
        assert train.main([*words, "--max_iters=2", "--eval_interval=2", "--eval_iters=2", *SHORT["adapter"]]) == 0
        return {family: contents(Path(family)) for family in SHORT}


@pytest.fixture
def run(runs, workplace):
    """A function that writes a run into the folder `run` and returns the path of its last checkpoint.

    Given other bytes, these are its best checkpoint too, which a run's folder means to sample.py.
    """

    def write(family: str, last: bytes | None = None) -> Path:
        shutil.rmtree("run", ignore_errors=True)
        Path("run").mkdir()
        changes = {} if last is None else dict.fromkeys(("last.safetensors", "best.safetensors"), last)
        for name, data in (runs[family] | changes).items():
            (Path("run") / name).write_bytes(data)
        return Path("run/last.safetensors")

    return write


def sampled(path: Path, *words: str, family: str = "gpt") -> None:
    """Generate a few tokens, or translate a short sentence."""
    short = ["--start=abc", "--beam=2"] if family == "seq2seq" else ["--start=Es irrt", "--max_new_tokens=3"]
    assert sample.main([str(path), *short, *words]) == 0


def resume(*words: str) -> None:
    """Resume the run, with options that keep it short."""
    fixed = ["--workers=1", "--max_iters=4", "--eval_interval=2"]
    assert train.main(["--resume", "--out_dir=run", *fixed, *words]) == 0


SHORT = {
    "gpt": ["--sample_tokens=0", "--batch_size=4", "--gradient_accumulation_steps=1"],
    "seq2seq": ["reverse", "--eval_pairs=0", "--batch_tokens=200", "--gradient_accumulation_steps=1", "--toy_size=300"],
}
SHORT["adapter"] = SHORT["gpt"]


# --- random damage ----------------------------------------------------------------------------------------------------


@many(60, 2500)
@pytest.mark.parametrize("family", ["gpt", "seq2seq"])
def test_a_broken_checkpoint_generates_or_is_refused(family, count, runs, workplace, tried_many):
    path = Path("broken.safetensors")

    def attempt(rng):
        path.write_bytes(mutations.odd_checkpoint(rng, runs[family]["last.safetensors"]))
        return lambda: sampled(path, family=family)

    # Some damage leaves the checkpoint usable.
    what = f"broken {family} checkpoints given to sample.py"
    assert tried_many(count, SEED, what, attempt, used=0.05, refusals=["CheckpointError"]) < 200 * 2**20
    assert sorted(path.name for path in workplace.iterdir()) == ["broken.safetensors", "text.txt"]


@pytest.fixture
def adapter(run, runs):
    """The bytes of the adapter, which is in the folder `run`, beside its base."""
    Path("base.safetensors").write_bytes(runs["gpt"]["last.safetensors"])
    return run("adapter").read_bytes()


@many(20, 600)
@pytest.mark.parametrize("family", SHORT)
def test_a_broken_checkpoint_resumes_or_is_refused(family, count, adapter, run, runs, workplace, tried_many):
    def attempt(rng):
        run(family, mutations.odd_checkpoint(rng, runs[family]["last.safetensors"]))
        return lambda: resume(*SHORT[family], *(["--text=text.txt"] if family != "seq2seq" else []))

    what = f"broken {family} checkpoints given to train.py --resume"
    tried_many(count, SEED + 1, what, attempt, refusals=("CheckpointError", "OptionError"))
    assert sorted(path.name for path in workplace.iterdir()) == ["base.safetensors", "run", "text.txt"]


@many(40, 2000)
def test_a_broken_adapter_is_folded_in_or_refused(count, adapter, tried_many):
    path, base = Path("broken.safetensors"), Path("base.safetensors")
    beside = (base, f"--adapter={path}")
    ways = itertools.cycle([(path,), beside, (*beside, "--quantize=nf4")])

    def attempt(rng):
        path.write_bytes(mutations.odd_checkpoint(rng, adapter))
        return functools.partial(sampled, *next(ways))

    tried_many(count, SEED + 3, "broken adapters given to sample.py", attempt, used=0.05, refusals=["CheckpointError"])


PLACE = {"path": "base.safetensors", "sha256": "0" * 64, "alpha": 1}
HALF = "model.blocks.0.mixer.query.lora_A.weight"


def with_base(**facts: object) -> dict:
    """Another description of an adapter's base."""
    return {"": {"base": PLACE | facts}}


MISFITS = [
    ({}, "changes nothing: it holds no tensors"),
    ({HALF: None}, "query has lora_B but not the other half of its change"),
    ({HALF: np.ones((2, 9), "f4")}, r"as if its shape were \(16, 9\), but in its base it is \(16, 16\)"),
    ({HALF: np.ones((3, 16), "f4")}, r"has lora_A \(3, 16\) and lora_B \(16, 2\), but they must be"),
    ({HALF: np.full((2, 16), np.nan, "f4")}, "holds NaN or infinity"),
    ({"model.invented": np.ones(3, "f4")}, "changes invented, which its base does not have"),
    (with_base(path="/"), "is an adapter of /, which is not there"),
    (with_base(path="//far/away"), "away, which is not there"),
    (with_base(path="x" * 5000), "which is not there"),
    (with_base(), "was not trained on the weights of"),
    (with_base(alpha=1e300), "cannot be used"),
    ({"": {"base": {"path": 3}}}, "its description of its base cannot be used"),
    (with_base(quantize="nf5"), "its base was quantized as 'nf5', which this program does not know"),
    (with_base(quantize=["nf4"]), r"its base was quantized as \['nf4'\], which this program does"),
    ({"": {"base": ["base.safetensors"]}}, "the field 'base' of its description is .* of the wrong type"),
    ({"model": {"n_head": 4}}, "adapts a model with n_head 4, but base.safetensors has 2"),
    ({"model": {"block_size": 999}}, "adapts a model with block_size 999, but base.safetensors has 8"),
]


@pytest.mark.parametrize(("changes", "reason"), MISFITS)
def test_an_adapter_that_does_not_fit_is_refused_with_the_reason(changes, reason, adapter):
    path = Path("other.safetensors")
    tensors = safetensors.numpy.load(adapter) if changes else {}
    _, info, _ = taken_apart(adapter)
    for name, value in changes.items():
        if isinstance(value, dict):
            (info[name] if name else info).update(value)
        else:
            tensors[name] = value
    tensors = {name: array for name, array in tensors.items() if array is not None}
    path.write_bytes(safetensors.numpy.save(tensors, {KEY: json.dumps(info)}))
    with pytest.raises(CheckpointError, match=reason):
        sampled(path)


OTHER_SETTINGS = [
    ({"lora_rank": 10**9}, "rank 1000000000 is above 16"),  # and takes no memory
    ({"quantize": "nf4"}, "its settings and its base contradict each other"),
    ({"quantize": "nf5"}, "--quantize 'nf5' .*: must be one of int8, int8-block"),
]


@pytest.mark.parametrize(("settings", "reason"), OTHER_SETTINGS)
def test_settings_that_do_not_fit_an_adapter_are_refused(settings, reason, adapter, runs):
    Path("run/last.safetensors").write_bytes(changed(adapter, "training", **settings))
    with pytest.raises((OptionError, CheckpointError), match=reason):
        resume(*SHORT["gpt"], "--text=text.txt")


@pytest.mark.parametrize("family", [GPT, BERT], ids=lambda family: family.name)
def test_a_base_is_downloaded_only_if_the_user_names_it(family, adapter, workplace, monkeypatch):
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", str(workplace / "cache"))
    ((name, module),) = family.fetched.items()
    path = Path("my run.safetensors")
    path.write_bytes(changed(adapter, "", base=PLACE | {"path": name}, family=family.name))
    shutil.copy(path, "run/last.safetensors")
    with harmless(workplace):
        refused(path, CheckpointError, rf"names? it: .* {name} --adapter {quoted(path)}", lambda: sampled(path))
        reason = f"an adapter of {name}, which is not in the cache"
        refused(path, CheckpointError, reason, lambda: resume("--text=text.txt"))
    (workplace / "cache" / module.FOLDER).mkdir(parents=True)
    (workplace / "cache" / module.FOLDER / "config.json").write_text('{"model_type": "x"}')  # from there it is read
    with harmless(workplace):
        refused(path, CheckpointError, f"{module.FOLDER}.*: model_type is 'x'", lambda: sampled(path))


# Every kind of setting that the program reads, including scaled rotary positions.
SCALED = QWEN3 | {"rope_parameters": LLAMA3 | {"rope_type": "llama3", "rope_theta": 50.0}}
SCALED |= {"layer_types": ["full_attention"] * 2, "hidden_act": "silu", "attention_bias": False}


@pytest.mark.parametrize("title", ["GPT-2", "Qwen3"])
@many(20, 400)
def test_a_broken_hugging_face_folder_generates_or_is_refused(count, title, tried_many):
    folder = byte_folder("theirs") if title == "GPT-2" else llama_folder(Path("theirs"), SCALED)
    sampled(folder)
    good = contents(folder)

    def attempt(rng):
        for name, data in good.items():
            (folder / name).write_bytes(data)
        name = rng.choice(list(good))
        data = mutations.odd_bytes(rng, good[name])
        if name.endswith("json") and rng.random() < 0.7:
            data = json.dumps(mutations.odd_json(rng, json.loads(good[name]))).encode()
        (folder / name).write_bytes(data)
        return lambda: sampled(folder)

    tried_many(count, SEED + 2, f"broken folders in {title}'s layout", attempt, refusals=["CheckpointError"])


def test_a_checkpoint_cut_at_every_kilobyte_is_refused(run, runs, workplace, report):
    last, path = runs["gpt"]["last.safetensors"], Path("cut.safetensors")
    lengths = range(0, len(last), 1024)
    for length in lengths:
        path.write_bytes(last[:length])
        refused(path, CheckpointError, "not a readable checkpoint", lambda: sampled(path))
    run("gpt")
    for length in lengths[::8]:
        Path("run/last.safetensors").write_bytes(last[:length])
        refused(path, CheckpointError, "not a readable checkpoint", resume)
    times = len(lengths) + len(lengths[::8])
    report(f"hostile files: a checkpoint cut at each of {len(lengths)} kilobytes: refused {times} times")


# --- damage by design -------------------------------------------------------------------------------------------------


class Evil:
    """Unpickling it would make a file."""

    def __reduce__(self):
        return (open, ("unpickled", "w"))


def test_a_pickle_named_like_a_checkpoint_is_not_unpickled(run, workplace):
    path = run("gpt", pickle.dumps(Evil()))
    uses = [lambda: train.main([f"--init_from={path}", "--out_dir=x", "--text=text.txt"]), lambda: sampled(path.parent)]
    uses += [lambda: export.main([str(path), "exported"])]
    uses += [functools.partial(script.main, [str(path)]) for script in (sample, evaluate)]
    with harmless(workplace):
        refused(path, CheckpointError, "not a readable checkpoint", *uses)
    assert not Path("unpickled").exists()


PLACES = [
    *(("gpt", {name: value}) for name, value in (("out_dir", "elsewhere"), ("init_from", "elsewhere"))),
    *(("gpt", {name: True}) for name in ("overwrite", "profile")),
    *(("gpt", {"dataset": value}) for value in ("../secret.txt", "/etc/hostname")),
    ("gpt", {"text": ["secret.txt"]}),
    ("seq2seq", {"pairs": "secret.tsv"}),
    ("seq2seq", {"src": "secret.tsv", "tgt": "secret.tsv"}),
]


@pytest.mark.parametrize(("family", "values"), PLACES)
def test_a_checkpoint_cannot_choose_where_to_read_or_write(family, values, run, runs, workplace):
    (workplace / "secret.txt").write_text(made_up_text(seed=2), encoding="utf-8")
    (workplace / "secret.tsv").write_text("ein\tone\n" * 100, encoding="utf-8")
    run(family, changed(runs[family]["last.safetensors"], "training", **values))
    Path("run/options.json").unlink()
    with harmless(workplace), pytest.raises(CheckpointError, match=f"settings contain {next(iter(values))}"):
        resume()
    assert not Path("elsewhere").exists()


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX links")
@pytest.mark.parametrize("name", ["last.safetensors.tmp", "options.json.tmp", "metrics.csv", "samples.txt", "lock"])
@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_a_run_does_not_lead_out_of_it(name, there, run, workplace):
    outside = workplace / "precious.txt"
    if there:
        outside.write_text("precious", encoding="utf-8")
    run("gpt")
    (workplace / "run" / name).unlink(missing_ok=True)
    (workplace / "run" / name).symlink_to(outside)
    with harmless(workplace / "run"):
        try:
            resume("--text=text.txt", "--sample_tokens=3")
        except OptionError as error:
            assert "is a link" in str(error)  # noqa: PT017 (it need not be raised)
    assert (outside.read_text(encoding="utf-8") == "precious") if there else not outside.exists()


def test_special_tokens_other_than_the_models_are_refused(run, runs):
    last = runs["seq2seq"]["last.safetensors"]
    assert taken_apart(last)[1]["tokenizer"]["specials"] == ["<pad>", "<bos>", "<eos>", "<unk>"]
    for specials in (["<pad>", "<bos>", "x", "<unk>"], ["<bos>", "<pad>", "<eos>", "<unk>"]):
        path = run("seq2seq", changed(last, "tokenizer", specials=specials))
        reason = "of its model, but not of its tokenizer"
        refused(path, CheckpointError, reason, lambda path=path: sampled(path, family="seq2seq"), resume)


questions = check.load(ROOT / "docs/extra/questions.py")
WITHOUT = [ByteTokenizer(), ByteTokenizer(["<end>"]), ByteTokenizer(["<answer>", "<end >"])]


@pytest.mark.parametrize("tokenizer", WITHOUT)
@pytest.mark.parametrize("dataset", ["chat", "calculations"])
def test_a_model_that_says_it_answers_needs_the_tokens_for_it(tokenizer, dataset, workplace):
    path = saved_gpt(Path("forged.safetensors"), tokenizer, dataset=dataset)
    refused(path, UserError, "has no chat template|is for models that", lambda: sample.main([str(path), "--chat"]))
    for words in (["--max_new_tokens=3"], ["--max_new_tokens=3", "--beam=2"], ["--explain=page.html"]):
        assert sample.main([str(path), "--start=a", *words]) == 0
    refused(path, CheckpointError, "did not learn from conversations", lambda: questions.main([str(path)]))


def refused(path: Path, error: type[UserError], reason: str, *uses: Callable[[], None]) -> None:
    """Assert that each of these uses of a checkpoint gives the error; without any, sampling and resuming."""
    for use in uses or (lambda: sampled(path), lambda: resume("--text=text.txt")):
        with pytest.raises(error, match=reason):
            use()


@contextmanager
def edited(path: Path) -> Iterator[Checkpoint]:
    """Inside, a checkpoint can be changed, which is then written again."""
    checkpoint = load_checkpoint(path, optimizer=True)
    yield checkpoint
    save_checkpoint(path, checkpoint)


def in_last(part: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Checkpoint], None]:
    """An edit of the last weight, or of the optimizer's last tensor."""

    def edit(checkpoint: Checkpoint) -> None:
        tensors = getattr(checkpoint, part)
        tensors[[*tensors][-1]] = change([*tensors.values()][-1])

    return edit


def ending(part: str, value: float) -> Callable[[Checkpoint], None]:
    """An edit: one number becomes this one."""
    return in_last(part, lambda x: np.append(x.ravel()[:-1], np.float32(value)).reshape(x.shape))


UNFIT = r"cannot resume from .*: the optimizer's state does not fit"
BROKEN = [float("nan"), float("inf"), -float("inf")]
EDITS = [
    *((CheckpointError, r"the tensor 'model\..*' holds NaN or infinity", ending("weights", value)) for value in BROKEN),
    *((CheckpointError, r"the tensor 'optimizer\..*' holds NaN", ending("optimizer", value)) for value in BROKEN),
    (CheckpointError, "of several types", in_last("weights", lambda x: x * np.float64(1e200))),
    (CheckpointError, "parameters, but the weights have 0", lambda it: it.weights.clear()),
    (CheckpointError, "best step is None", lambda it: setattr(it, "best_step", None)),
    (CheckpointError, "best step is", lambda it: setattr(it, "best_loss", None)),
    (CheckpointError, "best step is 99", lambda it: setattr(it, "best_step", 99)),
    (CheckpointError, "best step is -1", lambda it: setattr(it, "best_step", -1)),
    (CheckpointError, "best loss is -1", lambda it: setattr(it, "best_loss", -1.0)),
    (OptionError, UNFIT, lambda it: it.optimizer.clear()),
    (OptionError, UNFIT, lambda it: it.optimizer.popitem()),
    (OptionError, UNFIT, in_last("optimizer", lambda x: x[..., :-1])),
    (OptionError, UNFIT, lambda it: setattr(it, "optimizer", {f"momentum.{key}": x for key, x in it.weights.items()})),
]


@pytest.mark.parametrize(("error", "reason", "edit"), EDITS)
def test_a_checkpoint_that_contradicts_itself_is_refused(error, reason, edit, run):
    """By sample.py and --resume; what is wrong with the optimizer by the latter, which alone reads it."""
    with edited(path := run("gpt")) as checkpoint:
        edit(checkpoint)
    before = path.read_bytes()
    uses = [lambda: sampled(path), lambda: resume("--text=text.txt", "--patience=1")]
    refused(path, error, reason, *uses["optimizer" in reason :])
    assert path.read_bytes() == before


def test_weights_whose_sums_overflow_are_reported(run, workplace, capsys):
    with edited(path := run("gpt")) as checkpoint:
        for values in checkpoint.weights.values():
            values[...] = 3e38
    for words in ([], ["--beam=2"], ["--greedy"], ["--score=text.txt"]):
        refused(path, UserError, "diverged", lambda words=words: sample.main([str(path), *words]))
    refused(path, UserError, "the loss is nan", lambda: resume("--text=text.txt"))
    assert capsys.readouterr().out.strip() == ""


# --- for a terminal ---------------------------------------------------------------------------------------------------

ESCAPES = "\x07\x08\r\x1b\x7f\x9b"


@pytest.fixture
def rude(run):
    """A checkpoint whose vocabulary has control characters only, so it generates nothing else."""
    with edited(path := run("gpt")) as checkpoint:
        size = checkpoint.model["vocab_size"]
        characters = [chr(code) for code in range(1, 32) if chr(code) not in "\t\n"][: size - 2] + ["\x9b"]
        checkpoint.tokenizer = CharTokenizer(characters).to_json()
        checkpoint.model["vocab_size"] = len(characters) + 1
        for part in (checkpoint.weights, checkpoint.optimizer):
            for name in [name for name in part if name.endswith("token_embedding.weight")]:
                part[name] = part[name][: len(characters) + 1].copy()
    return path


@pytest.mark.parametrize("words", [[], ["--beam=2"], ["--greedy"], ["--show_probs"], ["--stop", "a"]])
def test_a_terminal_gets_no_control_characters_but_colours(words, rude, monkeypatch, capsys):
    arguments = [rude, "--start=\x1b[31m", "--max_new_tokens=20", *words]
    assert set(sampled_text(capsys, *arguments).out) & set(ESCAPES)  # a file gets what the model wrote
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    for no_colour, paints in (("1", ()), ("", (*COLOURS.values(), RESET))):
        monkeypatch.setenv("NO_COLOR", no_colour)
        out, err = sampled_text(capsys, *arguments)
        for paint in paints:
            out = out.replace(paint, "")
        assert not {*out, *err} & set(ESCAPES)
        assert "\\x1b[31m" in out


def test_samples_of_a_training_run_are_escaped_on_a_terminal_too(rude, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    resume("--text=text.txt", "--sample_tokens=20")
    out, err = capsys.readouterr()
    assert "\\x" in out
    assert not set(out) & set(ESCAPES)
    assert not set(err) & (set(ESCAPES) - {"\r", "\x1b"})  # the progress bar has these


EVIL = "\x1b]0;evil\x07" + "x" * 1_000_000
# The part of the description, and what is changed in it; of the last, the name of a tensor.
NAMES = [("", {"family": EVIL}), ("", {"format_version": EVIL}), ("model", {EVIL: 1}), ("training", {EVIL: 1})]
NAMES += [("tensors", {})]


@pytest.mark.parametrize(("part", "values"), NAMES)
def test_names_in_a_checkpoint_are_reported_escaped_and_shortened(part, values, run, runs, capsys):
    last = runs["gpt"]["last.safetensors"]
    header, info, body = taken_apart(last)
    header[EVIL] = header.pop("model.final_norm.weight")
    run("gpt", changed(last, part, **values) if values else put_together(header, info, body))
    command = ("train.py", train.main, "--resume", "--out_dir=run")
    status, err = said(capsys, *(command if part == "training" else ("sample.py", sample.main, "run")))
    assert status in (1, 2)
    assert "\x1b" not in err
    assert len(err) < 4000
    # The refusal describes the run.
    status, err = said(capsys, "train.py", train.main, "--out_dir=run", "--text=text.txt")
    assert status == 2
    assert "\x1b" not in err


def said(capsys: pytest.CaptureFixture, name: str, main: Callable[[list[str]], int], *words: str) -> tuple[int, str]:
    """The exit status and the stderr of a command; an exception fails the test."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        run_command(name, lambda _: main([*words]))
    return end.value.code, capsys.readouterr().err


# --- false sizes ------------------------------------------------------------------------------------------------------

LIMIT = 3 * 2**30  # bytes of address space; Python with NumPy takes 0.5


def absurd(data: bytes) -> dict[str, bytes]:
    """Checkpoints of a few kilobytes that claim to be enormous."""
    header, info, body = taken_apart(data)
    name = "model.final_norm.weight"
    tensor = header[name]
    files = {f"length {n}": put_together(header, info, body, n) for n in (2**64 - 1, 2**63, 2**40, 10**8, 0)}
    for shape in ([10**12], [2**40, 2**40], [2**62, 0], [2**63, 2], [16, 10**9], [-1], [1] * 100, [2**64]):
        files[f"shape {shape[:2]}"] = put_together({**header, name: tensor | {"shape": shape}}, info, body)
    settings = {"n_embd": 10**7, "vocab_size": 10**7, "n_layer": 10**7, "block_size": 10**7, "n_inner": 10**7}
    for setting, value in settings.items():
        files[f"{setting} {value}"] = changed(data, "model", **{setting: value})
    files["everything"] = changed(data, "model", **settings)
    files["format version"] = changed(data, "", format_version=10**4000)
    files["nested"] = put_together(header, "[" * 100_000, body)
    files["digits"] = put_together(header, '{"step": ' + "9" * 10_000 + "}", body)
    for kind, shape in (("F32", [2**62, 0]), ("F32", [2**63, 0]), ("F32", [0] * 70), ("BF16", [0]), ("F8_E4M3", [0])):
        empty = {"model.w": {"dtype": kind, "shape": shape, "data_offsets": [0, 0]}}
        files[f"nothing of {kind} {shape[:2]}"] = put_together(empty, info, b"")
    # Many tiny layers: their Python objects would need a thousand times the memory of their weights.
    layers = 100_000
    tiny = info["model"] | {"n_layer": layers, "n_embd": 1, "n_head": 1, "n_inner": 1, "vocab_size": 3, "block_size": 1}
    tiny |= {"bias": False, "positions": "learned"}
    numbers = 3 + 1 + layers * (4 + 2 + 2) + 1
    about = info | {"model": tiny, "tokenizer": CharTokenizer(["a", "b"]).to_json()}
    one = {"model.w": {"dtype": "F32", "shape": [numbers], "data_offsets": [0, 4 * numbers]}}
    files["many layers"] = put_together(one, about, bytes(4 * numbers))
    return files


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux limits a process's memory")
@pytest.mark.slow
def test_false_sizes_are_refused_in_little_memory(run, runs, report):
    path, environment = run("gpt"), os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    files = absurd(runs["gpt"]["last.safetensors"])
    limited = ["sh", "-c", f'ulimit -v {LIMIT >> 10}; exec "$@"', "sh", sys.executable]
    for name, data in files.items():
        path.write_bytes(data)
        for script, *words in (["sample.py", path], ["train.py", "--resume", "--out_dir=run", "--text=text.txt"]):
            done = subprocess.run([*limited, ROOT / script, *words], capture_output=True, timeout=600, env=environment)
            err = done.stderr.decode("utf-8")
            assert done.returncode in (1, 2), (name, done.returncode, err[-2000:])
            assert "Traceback" not in err, (name, err[-2000:])
            assert "enough memory" not in err, (name, err)
    limit, refused = LIMIT // 2**30, 2 * len(files)
    report(f"hostile files: {len(files)} checkpoints of absurd sizes, in {limit} GiB: refused {refused} times")


def test_false_sizes_are_refused_without_allocating_memory(run, runs):
    path = run("gpt")
    for name, data in absurd(runs["gpt"]["last.safetensors"]).items():
        path.write_bytes(data)
        with traced() as most:
            with pytest.raises(UserError):
                sampled(path)
            assert most() < 10 * len(data) + 20 * 2**20, (name, most())


def test_a_long_context_without_weights_takes_no_memory(run):
    """Sinusoidal positions have no weights, so a small file can claim millions."""
    with edited(path := run("gpt")) as checkpoint:
        del checkpoint.weights["position_embedding.weight"]
        checkpoint.model |= {"positions": "sinusoidal", "block_size": 10**7}
    before = resident()
    sampled(path)
    assert resident() < before + 200 * 2**20  # 10 million positions of 16 numbers are more


# --- files beside a checkpoint ----------------------------------------------------------------------------------------


@many(12, 400)
def test_broken_files_beside_a_checkpoint_are_used_or_refused(count, run, tried_many):
    samples = b"=== step 1: validation loss 3\nEs irrt\n\n=== step 2: validation loss 2\nder Mensch\n\n"

    def attempt(rng):
        run("gpt")
        Path("run/samples.txt").write_bytes(samples)
        path = Path("run") / rng.choice(["metrics.csv", "options.json", "samples.txt"])
        data = mutations.odd_bytes(rng, path.read_bytes())
        if path.name == "options.json" and rng.random() < 0.5:
            data = json.dumps(mutations.odd_json(rng, json.loads(path.read_bytes()))).encode()
        path.write_bytes(data)
        text = ["--text=text.txt"] if rng.random() < 0.5 else []
        return lambda: resume("--sample_tokens=0", *text)

    tried_many(count, SEED + 3, "broken metrics.csv, options.json, samples.txt", attempt, used=0.25, refused=0)


DAMAGED = [
    ("metrics.csv", b"step,loss\n\xff\xfe,1\n"),
    ("metrics.csv", "step,loss\n²,1\n".encode()),
    ("metrics.csv", b"step,loss\n" + b"9" * 5000 + b",1\n"),
    ("metrics.csv", b"step,loss\n1," + b"1" * 200_000),
    ("metrics.csv", b"\0" * 5000),
    ("metrics.csv", b""),
    ("samples.txt", b"=== step ,: x\n"),
    ("samples.txt", b"=== step " + b"9" * 5000 + b": x\n"),
    ("options.json", b"[" * 100_000),
    ("options.json", b'{"text": [' * 50_000),
]


@pytest.mark.parametrize(("name", "data"), DAMAGED)
def test_a_damaged_file_beside_a_checkpoint_does_not_end_a_run(name, data, run):
    run("gpt")
    (Path("run") / name).write_bytes(data)
    resume("--text=text.txt")
    assert load_checkpoint(RunFolder("run").last).step == 4


@pytest.mark.parametrize("text", ["a\0b", ["\0"], 5, {"a": 1}])
def test_files_that_options_json_names_are_checked(text, run):
    for family, name in (("gpt", "text"), ("seq2seq", "pairs")):
        path = run(family)
        Path("run/options.json").write_text(json.dumps({name: text}), encoding="utf-8")
        refused(path, UserError, r"\w", resume)
    refused(path, UserError, r"\w", lambda: evaluate.main(["run"]))


def test_a_file_of_another_program_is_recognised(workplace):
    path = Path("model.safetensors")
    theirs = safetensors.numpy.save({"w": np.zeros(2, np.float32)}, {"format": "pt", "x" + KEY: "{}"})
    for data in (theirs, struct.pack("<Q", 2) + b"{}"):
        path.write_bytes(data)
        refused(path, CheckpointError, "not a checkpoint of this project", lambda: sample.main([str(path)]))
