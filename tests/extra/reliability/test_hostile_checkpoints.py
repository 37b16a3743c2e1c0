"""Broken or malicious checkpoints: each is used as it is or refused with the reason, and does no harm.

A checkpoint that is used generates some tokens or translates a sentence; one that is resumed makes some updates.
"""

import functools
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import sample
import train
from extra.families import GPT
from tests.extra.pretrained.gpt2_folders import byte_folder
from tests.extra.pretrained.test_llama import LLAMA3, QWEN3, llama_folder
from tests.reliability import mutations
from tests.reliability.mutations import changed, harmless, many, put_together, taken_apart, traced
from tests.test_translation_scripts import run_training as train_pairs
from tests.tiny_runs import contents, made_up_text, run_training, undone
from tests.tiny_runs import sampled as sampled_text
from text.decoding.probabilities import COLOURS
from text.tokenizers.char import CharTokenizer
from tinygrad_lite.errors import CheckpointError, OptionError, UserError
from training.checkpoint import KEY, Checkpoint, load_checkpoint, save_checkpoint
from training.cli.console import RESET, quoted, run_command

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
    tried_many(count, SEED, what, attempt, used=0.05, refusals=["CheckpointError"])
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
    ({HALF: None}, "query has lora_B but not the other half of its change"),
    ({HALF: np.ones((2, 9), "f4")}, r"as if its shape were \(16, 9\), but in its base it is \(16, 16\)"),
    ({HALF: np.full((2, 16), np.nan, "f4")}, "holds NaN or infinity"),
    ({"model.invented": np.ones(3, "f4")}, "changes invented, which its base does not have"),
    (with_base(path="//far/away"), "away, which is not there"),
    (with_base(alpha=1e300), "cannot be used"),
    (with_base(quantize="nf5"), "its base was quantized as 'nf5', which this program does not know"),
    ({"model": {"n_head": 4}}, "adapts a model with n_head 4, but base.safetensors has 2"),
]


@pytest.mark.parametrize(("changes", "reason"), MISFITS)
def test_an_adapter_that_does_not_fit_is_refused_with_the_reason(changes, reason, adapter):
    path = Path("other.safetensors")
    tensors = safetensors.numpy.load(adapter)
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


def test_a_rank_that_does_not_fit_an_adapter_is_refused_and_takes_no_memory(adapter):
    Path("run/last.safetensors").write_bytes(changed(adapter, "training", lora_rank=10**9))
    with pytest.raises(OptionError, match="rank 1000000000 is above 16"):
        resume(*SHORT["gpt"], "--text=text.txt")


def test_a_base_is_downloaded_only_if_the_user_names_it(adapter, workplace, monkeypatch):
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", str(workplace / "cache"))
    ((name, module),) = GPT.fetched.items()
    path = Path("my run.safetensors")
    path.write_bytes(changed(adapter, "", base=PLACE | {"path": name}))
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


def test_a_checkpoint_cut_at_every_kilobyte_is_refused(run, runs):
    last, path = runs["gpt"]["last.safetensors"], Path("cut.safetensors")
    lengths = range(0, len(last), 1024)
    for length in lengths:
        path.write_bytes(last[:length])
        refused(path, CheckpointError, "not a readable checkpoint", lambda: sampled(path))
    run("gpt")
    for length in lengths[::8]:
        Path("run/last.safetensors").write_bytes(last[:length])
        refused(path, CheckpointError, "not a readable checkpoint", resume)


# --- damage by design -------------------------------------------------------------------------------------------------


PLACES = [
    ("gpt", {"out_dir": "elsewhere"}),
    ("gpt", {"overwrite": True}),
    ("gpt", {"dataset": "../secret.txt"}),
    ("gpt", {"text": ["secret.txt"]}),
    ("seq2seq", {"pairs": "secret.tsv"}),
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
@pytest.mark.parametrize("name", ["last.safetensors.tmp", "metrics.csv", "lock"])
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


def on_each(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Checkpoint], None]:
    """An edit of all tensors of the optimizer."""
    return lambda it: it.optimizer.update({name: change(x) for name, x in it.optimizer.items()})


UNFIT = r"cannot resume from .*: the optimizer's state does not fit"
EDITS = [
    (CheckpointError, r"the tensor 'optimizer\..*' holds NaN", on_each(lambda x: x * np.float32(np.nan))),
    (OptionError, UNFIT, lambda it: it.optimizer.clear()),
    (OptionError, UNFIT, lambda it: it.optimizer.popitem()),
    (OptionError, UNFIT, on_each(lambda x: x[..., :-1])),
    (OptionError, UNFIT, lambda it: setattr(it, "optimizer", {f"momentum.{key}": x for key, x in it.weights.items()})),
]


@pytest.mark.parametrize(("error", "reason", "edit"), EDITS)
def test_an_optimizer_that_does_not_fit_its_weights_is_refused(error, reason, edit, run):
    """By --resume, which alone reads it; what is wrong with the weights is in tests/training/test_checkpoint.py."""
    with edited(path := run("gpt")) as checkpoint:
        edit(checkpoint)
    before = path.read_bytes()
    refused(path, error, reason, lambda: resume("--text=text.txt", "--patience=1"))
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


EVIL = "\x1b]0;evil\x07" + "x" * 1_000_000


def test_a_name_in_a_checkpoint_is_reported_escaped_and_shortened(run, runs, capsys):
    run("gpt", changed(runs["gpt"]["last.safetensors"], "", family=EVIL))
    for name, main, *words in (
        ("sample.py", sample.main, "run"),
        ("train.py", train.main, "--resume", "--out_dir=run"),
        ("train.py", train.main, "--out_dir=run", "--text=text.txt"),  # the refusal describes the run
    ):
        with pytest.raises(SystemExit) as end:
            run_command(name, lambda _, main=main, words=words: main(words))
        err = capsys.readouterr().err
        assert end.value.code in (1, 2)
        assert "\x1b" not in err
        assert len(err) < 4000


# --- false sizes ------------------------------------------------------------------------------------------------------


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


def test_false_sizes_are_refused_without_allocating_memory(run, runs):
    path = run("gpt")
    for name, data in absurd(runs["gpt"]["last.safetensors"]).items():
        path.write_bytes(data)
        with traced() as most:
            with pytest.raises(UserError):
                sampled(path)
            assert most() < 10 * len(data) + 20 * 2**20, (name, most())


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
