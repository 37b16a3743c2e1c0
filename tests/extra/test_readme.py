"""The commands of the README and of docs/ are run one after the other, with a made-up text and tiny models.

All presets, modules, files and commands that the pages name exist.
"""

import functools
import glob
import importlib
import importlib.util
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sample
import tinygrad_lite
import train
from docs.course import check
from extra.chat import chat, smollm2
from extra.corpora import reviews
from extra.corpora.pictures import RECIPES, Pictures
from extra.encoders import minilm
from extra.encoders.export import export as export_bert
from extra.options import OWN_PRESETS
from extra.studies import scores, trials
from extra.studies.sizes import SIZES
from seq2seq.toys import toy_pairs
from tests.extra.pretrained.gpt2_folders import byte_folder, write_json
from tests.extra.pretrained.test_encoders import made as made_bert
from tests.extra.pretrained.test_llama import QWEN3, llama_folder
from tests.test_imports import FILES, FOLDERS
from tests.test_rings import code_lines
from tests.tiny_runs import undone
from text.tokenizers.bpe import BPETokenizer
from tinygrad_lite.device import DeviceError, why_no_cuda
from tinygrad_lite.errors import UserError
from training import setup
from training.cli.options import PRESETS, find_preset, list_presets, read_preset
from training.cli.unread import refuse_unread
from training.corpora import fetch, texts, wheel
from training.corpora.pairs import RULES, Found, to_table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# In the order of reading: later pages use the runs of the README's commands.
GUIDES = [
    ROOT / "docs" / f"{name}.md"
    for name in "runs extra/weights corpora translation extra/encoders extra/pictures".split()
    + "performance machines extra/costs".split()
]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "extra").glob("*.md")),
]
TEXT = "Habe nun, ach! Philosophie, Juristerei und Medizin,\nund leider auch Theologie durchaus studiert.\nDie " * 40
SMALL = "--n_layer 1 --n_head 2 --n_embd 16".split()
TINY = {
    "gpt": [*SMALL, *"--block_size 16 --batch_size 2 --vocab_size 295".split()],  # the merges of BERT's 300
    "names": [*SMALL, *"--block_size 64 --batch_size 2".split()],
    "igpt-digits": [*SMALL, "--batch_size", "2"],
    "diffusion": [*SMALL, *"--block_size 64 --batch_size 2 --vocab_size 295".split()],
    "bert": [*SMALL, *"--block_size 16 --batch_size 2 --vocab_size 300".split()],
    "vit": [*SMALL, "--batch_size", "8"],
    "cnn": ["--n_embd", "8", "--batch_size", "8"],
    "seq2seq": [*SMALL, *"--batch_tokens 200 --vocab_size 300 --toy_size 100".split()],
}
SHORT = {"gpt": "--eval_iters 1 --sample_tokens 2", "diffusion": "--eval_iters 1 --sample_tokens 2"}
SHORT |= {"bert": "--eval_iters 1", "seq2seq": "--eval_pairs 1"}


def commands(page: str) -> list[str]:
    """Every command of a page's shell blocks, without comments, in order."""
    page = re.sub(r"<<'END'\n.*?^END$", "", page.replace("\\\n", " "), flags=re.DOTALL | re.MULTILINE)
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    lines = [re.split(r" +# ", line)[0].strip() for block in blocks for line in block.splitlines()]
    return [command.strip() for line in lines for command in line.split("&&") if command.strip()]


@pytest.fixture
def newcomer(tmp_path, monkeypatch):
    """A folder with the files that the README mentions, and a cache with a text called goethe."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", str(tmp_path / "cache"))
    for name in ("goethe", "goethe-works", "imdb", "names", "plays", "shakespeare"):
        first = texts.RECIPES[name].held_out
        text = f"{TEXT}\n\n{first}\n\n{TEXT}" if first else TEXT
        fetch.store(name, text, {"source": "this test", "licence": "none"})
    labelled = [(f"{word} film {number}", number % 2) for number, word in enumerate(["bad", "good"] * 20)]
    monkeypatch.setattr(reviews, "labelled_sentences", lambda: [labelled[:20], labelled[20:38], labelled[38:]])
    rows = [f"{text},{label}\n" for text, label in labelled]
    files = {"my.csv": "text,label\n" + "".join(rows), "folder/one.txt": TEXT, "folder/two.txt": TEXT, "my.txt": TEXT}
    files["README.md"] = TEXT
    files["pairs.csv"] = "text1,text2,label\n" + "".join(f"it rains {number},{row}" for number, row in enumerate(rows))
    files |= {"prompt.txt": "Habe nun", "german.txt": "Habe nun\nach\n"}
    Path("folder").mkdir()
    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
    labels = np.arange(20, dtype=np.uint8) % 10
    parts = [Pictures(np.arange(20 * 64).reshape(20, 8, 8).astype(np.uint8) % 17, labels)] * 3
    for name in ("imdb", "names", "plays", "shakespeare"):
        monkeypatch.setitem(texts.RECIPES, name, replace(texts.RECIPES[name], signed=True))  # so a change is a warning
    monkeypatch.setitem(RECIPES, "digits", replace(RECIPES["digits"], make=lambda: parts))
    facts = {"source": "this test", "licence": "none", "rules": RULES}
    for name in ("everyday", "multi30k", "tatoeba", "libreoffice-help", "debian-summaries"):
        pairs = toy_pairs("numbers", 1200 if name == "multi30k" else 60)  # a command learns from 1,000
        fetch.store(f"pairs-{name}", to_table(Found(pairs)), facts)
    monkeypatch.setattr(fetch, "apt_folder", lambda *arguments, **settings: pytest.fail("a command needs a network"))
    byte_folder("gpt2", n_positions=256)
    llama_folder(Path("qwen3"), QWEN3, max_position_embeddings=256)
    stand_ins(tmp_path / "cache")
    monkeypatch.setattr(trials, "TOO_LONG", 0.0)  # no dry run measures some steps
    monkeypatch.setattr(scores, "SAMPLES", 2)  # which give no useful interval, but quickly
    if importlib.util.find_spec("matplotlib"):  # the pictures themselves are drawn by tests/studies
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, file, **how: file.write(b"<svg></svg>"))
    if not importlib.util.find_spec("jinja2"):
        monkeypatch.setattr(chat, "render", lambda template, variables: variables["messages"][0]["content"])
    monkeypatch.setattr(wheel, "pip_download", lambda *arguments: pytest.fail("a command needs a network"))
    with undone():
        yield tmp_path


def stand_ins(cache: Path) -> None:
    """Tiny models in place of those that are downloaded: as many layers and heads as the commands name."""
    words = "it king Berlin doctor happy tired".split()
    tokenizer = BPETokenizer.train(" ".join(["", *words]) * 9, 290, ["<|im_end|>"])
    sizes = {"max_position_embeddings": 256, "num_hidden_layers": 14, "hidden_size": 32}
    sizes |= {"num_attention_heads": 9, "head_dim": 8, "num_key_value_heads": 3}
    folder = llama_folder(cache / smollm2.FOLDER, tokenizer=tokenizer, **sizes)
    template = {"chat_template": "{{ messages[0].content }}", "eos_token": "<|im_end|>"}
    write_json(folder, tokenizer_config=template)
    export_bert(made_bert(block_size=128), cache / minilm.FOLDER)


def test_every_training_and_sampling_command_works(newcomer, monkeypatch, capsys, typed):
    (newcomer / "docs" / "extra").mkdir(parents=True)
    seen = set()  # a command of several pages is run once
    for path in (ROOT / "README.md", *GUIDES):
        ran = 0
        for command in commands(path.read_text(encoding="utf-8")):
            runs = re.search(r"^(?!mpirun|srun).*\bpython (train\b|sample\b|-m\b|docs/)", command)
            if command not in seen and runs and "venv" not in command:
                ran += run_command(command, monkeypatch, capsys, typed)
            seen.add(command)
        assert ran >= (15 if path.name == "README.md" else 1), path


def run_command(command: str, monkeypatch, capsys, typed) -> int:
    """Run one command; 1 if it worked, 0 if it takes too long here or needs a missing package."""
    given, _, command = command.rpartition(" | ")
    if given:
        typed(" ".join(shlex.split(given)[1:]))
    words = shlex.split(command)
    # As a shell does.
    words = [name for word in words for name in (sorted(glob.glob(word)) if "/*" in word else [word])]
    python, script, *arguments = words[1:] if "=" in words[0] else words  # after a variable of the environment
    assert python == "python"
    if script == "-m":
        return run_module(*arguments)
    if script.startswith("docs/"):
        return run_module(script, *arguments)
    if "cuda" in arguments and why_no_cuda():
        with pytest.raises(DeviceError):
            {"train.py": train, "sample.py": sample}[script].main(arguments)
        return 1
    if script == "train.py":
        return run_training(arguments, monkeypatch)
    assert script == "sample.py"
    arguments = [word.replace("multi30k", "translate") for word in arguments]  # there is no run on captions here
    translates = arguments[0] in ("out/reverse", "out/translate-de-en")
    if "--chat" in arguments:
        typed("Hello\n")
    if "--attention" in arguments and not importlib.util.find_spec("matplotlib"):
        return 0
    if "--explain" in arguments:
        assert sample.main(arguments) == 0
        return Path(arguments[arguments.index("--explain") + 1]).read_text("utf-8").startswith("<!doctype html>")
    encoders = "out/bert-goethe out/classify out/pairs my-bert out/vit-digits out/igpt-digits minilm"
    reads = arguments[0] in encoders.split() or any("___" in word for word in arguments)  # gaps are filled
    if not (translates or reads) and "--max_new_tokens" not in arguments and "--score" not in arguments:
        arguments += ["--max_new_tokens", "4"]
    assert sample.main(arguments) == 0
    assert capsys.readouterr().out.strip() or translates  # an untrained model may end at once
    return 1


def run_training(arguments: list[str], monkeypatch) -> int:
    """Run one training command, shortened; 1 if it worked."""
    if "--help" in arguments:
        with pytest.raises(SystemExit) as stop:
            train.main(arguments)
        return stop.value.code == 0
    if SIZES.keys() & set(arguments):  # nothing is trained
        return train.main(arguments) == 0
    resumed = "--resume" in arguments
    # Later options win, so the short run replaces the README's long one.
    named = next((word for word in arguments if word in list_presets(PRESETS, OWN_PRESETS)), "goethe")
    family = read_preset(find_preset(named)).get("family", "gpt")
    # Trained weights have a shape already.
    shape = [] if resumed or "--init_from" in arguments else TINY.get(named, TINY[family])
    cut = [*SHORT.get(family, "").split(), "--eval_interval=2", f"--max_iters={3 if resumed else 2}", *shape]
    if "smollm2" in arguments:  # it has 14 layers
        cut += "--workers 1 --block_size 16 --gradient_accumulation_steps 1".split()
    # What shortens a run may change nothing in it; the words of the page may not.
    typed = {word.partition("=")[0].removeprefix("--") for word in arguments}

    def refuse(options, given, readers):
        refuse_unread(options, {name: given[name] for name in given if name in typed}, readers)

    monkeypatch.setattr(setup, "refuse_unread", refuse)
    return train.main([*arguments, *cut]) == 0


def run_module(name: str, *arguments: str) -> int:
    """Run a command that is a module, or a script of the course; 1 if it worked, 0 if it could not be run."""
    # These take too long here, need PyTorch or a quiet machine; or they need runs of benchmarks.experiments.
    if name.startswith(("benchmarks", "timeit")) or any(word.startswith("out/experiments/") for word in arguments):
        return 0
    before = ("", *arguments)
    arguments = ["20" if name == "--train_pairs" else word for name, word in zip(before, arguments, strict=False)]
    extra = "rouge_score" if "--rouge" in arguments else "sacrebleu"
    if name == "extra.studies.scores" and not importlib.util.find_spec(extra):
        return 0
    few = ["--max_pairs", "2"] if name == "extra.studies.scores" and "--max_pairs" not in arguments else []
    try:
        module = check.load(ROOT / name) if name.endswith(".py") else importlib.import_module(name)
        return module.main([*arguments, *few]) == 0
    except UserError as error:
        if "plotting needs matplotlib" in str(error) and not importlib.util.find_spec("matplotlib"):
            return 0
        raise


def test_the_tree_of_the_readme_names_every_folder_with_its_lines():
    """Code lines, to the nearest hundred."""
    lines = {module: code_lines(file.read_text(encoding="utf-8")) for module, file in FILES.items()}
    tree = README.split("## Read it")[1].split("```")[1]
    named = set()
    for row in re.findall(r"^\w.*\d.*$", tree, re.MULTILINE):
        modules = re.findall(r"(\w+)(?:\.py|/)", row) if ".py" in row else re.findall(r"(\w+)/ ", row[:21])
        found = sum(n for module, n in lines.items() if any(f"{module}.".startswith(f"{one}.") for one in modules))
        shown = re.findall(r"  ([\d,]+)", row)[-1]
        assert int(shown.replace(",", "")) == round(found, -2), (row, found)
        named.update(modules)
    assert {*FOLDERS} - {"benchmarks", "encoder", "studies", "tests"} <= named


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_names_only_files_that_exist(path):
    """Links and their headings, presets, modules after `python -m`, paths after `pytest`, names of source files."""
    page, missing = path.read_text(encoding="utf-8"), []
    page = re.sub(r"^```markdown\n.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)  # what a recipe adds to a page
    page = re.sub(r"version \d\.\d\.\d's `[^`]*`", "", page)  # a command that is gone
    for file, heading in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]*))?\)", page):
        target = path.parent / file if file else path
        if not target.exists() or (heading and heading not in headings(target.read_text(encoding="utf-8"))):
            missing.append(f"{file}#{heading}")
    presets = {"mine", *SIZES, *list_presets(PRESETS, OWN_PRESETS)}  # mine.toml is the reader's
    missing += set(re.findall(r"python train\.py ([a-z][\w-]*)", page)) - presets
    for words in re.findall(r"pytest ([^`\n#]*)", page):
        missing += [word for word in words.split() if word.startswith("tests/") and not (ROOT / word).exists()]
    missing += [name for name in re.findall(r"python (docs/[\w/-]+\.py)", page) if not (ROOT / name).exists()]
    if path.name != "CHANGELOG.md":  # which names former files and commands
        missing += [name for name in re.findall(r"python -m ([a-z][\w.]*)", page) if not importlib.util.find_spec(name)]
        sources = re.findall(r"`([\w/]+\.(?:py|cuh?))`", page)
        missing += [name for name in sources if not any(file.endswith(f"/{name}") for file in known_files())]
    assert missing == []


@functools.cache
def known_files() -> list[str]:
    """The files whose names a page may mention."""
    files = [file for name in (*FOLDERS, "tests") for file in (ROOT / name).glob("**/*.*")]
    scripts = [
        file for name in ("*", "course/[0-9]*/*", "extra/*", "museum/*") for file in ROOT.glob(f"docs/{name}.py")
    ]
    files += [*ROOT.glob("*.py"), *scripts]
    return [f"/{file.relative_to(ROOT).as_posix()}" for file in files]


def headings(page: str) -> set[str]:
    """The names under which a page's headings can be linked to."""
    return {anchor(line) for line in re.findall(r"^#+ (.*)$", page, re.MULTILINE)}


def anchor(heading: str) -> str:
    """The name under which a heading can be linked to."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_the_twenty_translations_are_of_the_sentences_chosen_beforehand():
    """All of them in order, good or bad, each with its reference translation."""
    page = (ROOT / "docs" / "translation.md").read_text(encoding="utf-8")
    lines = (ROOT / "seq2seq" / "simple_sentences.tsv").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]
    shown = [(row[0], row[2]) for row in rows if len(row) == 3 and row[0].endswith((".", "?"))]
    assert (shown, len(shown)) == ([tuple(line.split("\t")) for line in lines], 20)


def test_the_version_is_the_newest_in_the_changelog():
    newest = re.search(r"^## ([\d.]+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert newest == tinygrad_lite.__version__
    assert f'version = "{newest}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
