"""The chapters from 13 on, which may need the shelf, are as those before them."""

import random
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from docs.course import check
from extra.corpora.pictures import Pictures
from extra.encoders.bert import Bert
from extra.encoders.config import BertConfig
from extra.encoders.words import SPECIALS
from extra.inside import look_inside
from extra.museum.exhibits import EXHIBITS
from extra.tokenizers.wordpiece import WordPieceTokenizer
from gpt.model import GPT
from tests import test_course as core
from tests.gpt.configs import GPTConfig
from tests.gpt.saved_models import save, saved_gpt
from text.tokenizers.bpe import BPETokenizer
from text.tokenizers.char import CharTokenizer
from tinygrad_lite import Tensor, manual_seed, no_grad
from tinygrad_lite.errors import UserError
from training.checkpoint import load_checkpoint
from training.corpora.texts import Corpus

OF_EVERY_CHAPTER = [
    core.test_exercises_fail_on_their_blanks_and_pass_when_solved,
    core.test_a_chapter_names_its_exercises_and_is_neither_too_short_nor_too_long,
    core.test_code_that_a_chapter_quotes_is_in_a_file,
]


@pytest.mark.parametrize("test", OF_EVERY_CHAPTER)
@pytest.mark.parametrize("page", core.LATER, ids=lambda page: page.parent.name)
def test_a_later_chapter_is_as_those_before_it(page, test):
    test(page)


# --- chapter 15: the experiments compute what is right where it is known, and they run --------------------------------


pytestmark = pytest.mark.usefixtures("workplace")
FOLDER = check.chapters()[15]
NAMES = ("induction", "patching", "superposition")
induction, patching, superposition = (check.load(FOLDER / f"{name}.py") for name in NAMES)
SCRIPTS = {
    "induction": (induction, ["--max_iters", "1"]),
    "patching": (patching, ["--max_iters", "1", "--answer_a", "m", "--answer_b", "k"]),
    "superposition": (superposition, ["--max_iters", "2", "--starts", "2"]),
}


def is_drawing(file: Path) -> bool:
    """Whether a file is SVG with a title, small enough for the repository."""
    root = ElementTree.parse(file).getroot()
    return root.tag == "{http://www.w3.org/2000/svg}svg" and bool(root[0].text) and file.stat().st_size <= 20_000


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_experiment_prints_a_table_and_draws(name, ran, workplace):
    script, options = SCRIPTS[name]
    rows = re.findall(r"^.*\d\.\d\d.*$", ran(script.main, *options).out, re.MULTILINE)
    assert len(rows) == {"induction": 2 + 4, "patching": 3, "superposition": 4}[name]
    assert is_drawing(workplace / f"{name}.svg")
    assert is_drawing(FOLDER / f"{name}.svg")
    assert f"]({name}.svg)" in (FOLDER / "README.md").read_text(encoding="utf-8")


REFUSED = [
    (induction, ["--plot", "a.png"], "--plot a.png: must end with .svg"),
    (superposition, ["--densities", "0,1"], "--densities 0,1: write numbers above 0 and at most 1"),
    (patching, ["--a", "abc"], "--a and --b: they have 3 and 10 tokens, but need the same number, from 1 to 32"),
    (patching, ["--a", "ab", "--b", "ab", "--max_iters", "1"], "--a and --b: the model answers both alike"),
]


@pytest.mark.parametrize(("script", "options", "sentence"), REFUSED)
def test_what_cannot_be_done_is_said_in_a_sentence(script, options, sentence):
    with pytest.raises(UserError, match=re.escape(sentence)):
        script.main(options)


# --- the induction head -------------------------------------------------------------------------------------------


def test_a_sequence_repeats_a_piece_of_different_tokens():
    ids = induction.sequences(np.random.default_rng(0), 100)
    assert ids.shape == (100, induction.LENGTH + 1)
    assert {len(set(row.tolist())) for row in ids} == {*range(8, 17)}
    for row in ids:
        length = len(set(row.tolist()))
        assert (row[length:] == row[:-length]).all()


def test_scores_of_attention_made_by_hand():
    """Heads that look one back, at what followed the same token, and everywhere, in 5 6 7 5 6."""
    ids = np.array([[5, 6, 7, 5, 6]])
    one_back, follows, everywhere = np.eye(5, k=-1), np.zeros((5, 5)), np.tril(np.ones((5, 5)))
    one_back[0, 0] = 1
    follows[range(5), [0, 0, 0, 1, 2]] = 1
    everywhere /= everywhere.sum(-1, keepdims=True)
    found = induction.scores(np.array([[one_back, follows, everywhere]]), ids)
    np.testing.assert_allclose(found[0], [1, 0.5, (1 / 2 + 1 / 3) / 2])  # positions 1 and 2, whose tokens are new
    np.testing.assert_allclose(found[1], [0, 1, (1 / 4 + 1 / 5) / 2])  # positions 3 and 4, whose tokens are not


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1337, 1, 2])
def test_an_induction_head_is_born_with_two_layers_and_not_with_one(seed):
    held_out = induction.sequences(np.random.default_rng(0), 64)
    for layers in (2, 1):
        manual_seed(seed)
        model = induction.AttentionOnly(layers)
        for _ in induction.train(model, 400, seed):
            pass
        bits, scores = induction.measure(model, held_out)
        assert (bits[1] < 0.2) == (layers == 2)
        assert (scores.max(axis=1) > 0.9).all() == (layers == 2)


# --- patching -----------------------------------------------------------------------------------------------------

A, B = [3, 1, 4, 1, 5, 2], [3, 1, 0, 1, 5, 2]


@pytest.fixture(params=["learned", "rotary", "attention only"])
def model(request):
    """A model with random weights, large enough for attention to matter."""
    manual_seed(1)
    if request.param == "attention only":
        model = induction.AttentionOnly(layers=2)
    else:
        model = GPT(GPTConfig(vocab_size=6, block_size=8, n_layer=2, n_head=2, n_embd=12, positions=request.param))
        for parameter in model.parameters():
            parameter.data *= 4
    return model.eval()


def test_the_stream_leads_to_the_model_s_own_answer_from_every_layer(model):
    with no_grad():
        right = model(Tensor(np.array([A]))).numpy()[:, -1]
    for layer, x in enumerate(patching.stream(model, A)):
        np.testing.assert_allclose(patching.answers(model, x[None], layer), right, rtol=1e-4, atol=1e-5)


def test_what_a_patch_must_do(model):
    """The prompts differ at position 2: before it nothing moves, and at the end all that has moved is in one place."""
    effects, both = patching.patching(model, A, B, [3, 4])
    assert (both, effects.shape) == ([3, 4], (3, 6))
    np.testing.assert_allclose(effects[:, :2], 0, atol=1e-3)
    np.testing.assert_allclose(effects[0], [0, 0, 1, 0, 0, 0], atol=1e-3)
    np.testing.assert_allclose(effects[2], [0, 0, 0, 0, 0, 1], atol=1e-3)
    assert (abs(effects[1]) > 0.01).sum() > 1  # in the middle it is spread


# --- superposition ------------------------------------------------------------------------------------------------


def models(densities, features, starts=1):
    return superposition.Models(densities, starts, features, np.random.default_rng(0))


def test_two_features_fit_into_two_dimensions_and_a_third_does_not():
    for features, loss in ((2, 0.0), (3, 0.81 / 3 / 3)):  # the third is lost: 0.9^2 E x^2, one of three
        found = models([1.0], features)
        found.weight.data[...] = np.eye(2, features)
        assert found.losses(found.inputs(20_000)).item() == pytest.approx(loss, rel=0.02, abs=1e-6)


def test_inputs_are_as_dense_as_asked():
    x = models([1.0, 0.1], 5, starts=2).inputs(10_000)
    assert x.shape == (4, 10_000, 5)
    np.testing.assert_allclose((x > 0).mean((1, 2)), [1, 1, 0.1, 0.1], atol=0.01)
    np.testing.assert_allclose(x.mean((1, 2)), [0.5, 0.5, 0.05, 0.05], atol=0.01)


def test_gaps_of_a_pentagon():
    angles = np.radians([0, 72, 144, 216, 288, 10])
    pentagon = np.stack([np.cos(angles), np.sin(angles)]) * [1, 1, 1, 1, 1, 0.1]  # the last is too short to count
    np.testing.assert_allclose(superposition.gaps(pentagon), [72] * 5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1337, 1, 2])
def test_dense_features_get_axes_and_sparse_ones_a_pentagon(seed):
    found = superposition.Models([1.0, 0.03], 16, 5, np.random.default_rng(seed))
    left = found.train(1000, 512).reshape(2, 16)
    dense, sparse = found.weight.numpy().reshape(2, 16, 2, 5)[[0, 1], left.argmin(axis=1)]
    np.testing.assert_allclose(superposition.gaps(dense), [90, 270], atol=5)
    np.testing.assert_allclose(superposition.gaps(sparse), [72] * 5, atol=5)


# --- chapter 17: words in contexts --------------------------------------------------------------------------------

encoders = check.chapters()[17]
contexts = check.load(encoders / "contexts.py")
SENTENCES = [f"{sentence} {a} {b}." for sentence, a, b, *_ in contexts.SUITS_ONE + contexts.SUITS_BOTH]
SENTENCES += [sentence for kinds in contexts.MEANINGS.values() for kind in kinds for sentence in kind]


@pytest.fixture
def reader():
    """An untrained encoder that knows the words of the experiments, without positions."""
    words = dict.fromkeys(re.findall(r"\w+|[^\w\s]", " ".join(SENTENCES).lower()))
    tokenizer = WordPieceTokenizer([*SPECIALS, *words], SPECIALS)
    specials = {name: tokenizer.specials[BertConfig.special_token(name)] for name in BertConfig.special_fields()}
    sizes = {"block_size": 80, "n_layer": 2, "n_head": 2, "n_embd": 8}
    manual_seed(1)
    model = Bert(BertConfig(tokenizer.vocab_size, **specials, **sizes, norm_first=False)).eval()
    model.position_embedding.weight.data[...] = 0
    return contexts.Reader(model, tokenizer)


def test_contexts_of_a_model_without_attention(reader):
    """Where every head attends to all tokens alike, a word's vector depends on its sentence alone."""
    for block in reader.model.blocks:
        block.mixer.query.weight.data[...] = 0
    for sentence, ending, _, one, other in contexts.SUITS_ONE + contexts.SUITS_BOTH:
        attention, near = contexts.pronoun(reader, sentence, ending, one, other)
        np.testing.assert_allclose(attention, 0, atol=1e-7)
        found, places, tokens = reader.read(f"{sentence} {ending}.", "it", one, other)
        assert [tokens[place] for place in places] == ["it", one, other]
        it, a, b = (found.stream[-1, place] / np.linalg.norm(found.stream[-1, place]) for place in places)
        assert near[-1] == pytest.approx(it @ a - it @ b, abs=1e-5)
    rows = contexts.meanings(reader, "bank", contexts.MEANINGS["bank"])
    np.testing.assert_allclose(rows[0], 1, rtol=1e-5)  # before the first layer it is the same vector
    assert rows.shape == (3, 2)
    assert contexts.at_distance(np.array([[1.0, 0], [0, 2], [3, 0], [0, 4]]), 2) == 1


def test_contexts_prints_three_tables_and_draws(reader, ran, workplace):
    save(Path("run/last.safetensors"), "bert", reader.model, reader.model.state_dict(), reader.tokenizer)
    out = ran(contexts.main, "run").out
    assert len(re.findall(r"\d → ", out)) == 2 * len(contexts.SUITS_ONE + contexts.SUITS_BOTH)
    assert len(re.findall(r"^\d( +\d\.\d\d / \d\.\d\d){3}$", out, re.MULTILINE)) == 3
    for file in (workplace / "contexts.svg", encoders / "contexts.svg"):
        assert is_drawing(file)


# --- chapter 17: tagging, and bags of words ---------------------------------------------------------------------

tagging, cbow, judge = (check.load(encoders / f"{name}.py") for name in ("tagging", "cbow", "judge"))
GOETHE = "Es irrt der Mensch, so lang er strebt. Das Leben ist kurz, die Kunst ist lang. Wir leben und irren. " * 9


@pytest.fixture
def small_bert(workplace):
    """The checkpoint of a small encoder without training, and its tokenizer."""
    tokenizer = BPETokenizer.train(GOETHE + "Die Hauptstadt von Frankreich ist Paris", 290, SPECIALS)
    specials = {name: tokenizer.specials[BertConfig.special_token(name)] for name in BertConfig.special_fields()}
    sizes = {"block_size": 64, "n_layer": 1, "n_head": 2, "n_embd": 16, "positions": "rotary"}
    manual_seed(1)
    model = Bert(BertConfig(tokenizer.vocab_size, **specials, **sizes, dropout=0.0))
    return save(Path("run/last.safetensors"), "bert", model, model.state_dict(), tokenizer), model, tokenizer


def test_words_with_a_capital_are_marked_and_learned(small_bert, monkeypatch, ran):
    _, model, tokenizer = small_bert
    rows = tagging.tagged(tokenizer, GOETHE)
    assert max(len(row.ids) for row in rows) <= tagging.LENGTH + 2
    ends = [[tokenizer.render(row.ids[place]) for place in row.places] for row in rows]
    assert [piece.strip()[-1] for piece in ends[0][:4]] == ["s", "t", "r", "h"]
    assert rows[0].targets[:9].tolist() == [1, 0, 0, 1, 0, 0, 0, 0, 1]
    assert GOETHE.lower().startswith(tokenizer.decode(rows[0].ids[1:-1].tolist()))
    tagger = tagging.fitted(tagging.Tagger(model), rows, tagging.TaggingOptions(max_iters=60))
    assert tagging.are_right(tagger, rows).mean() > 0.9
    right, hard = tagging.baseline("Das Leben, das Leben. Wir leben, der Mann", "Leben leben. Neu mann leben")
    assert right.tolist() == [True, False, True, False, False]
    assert hard.tolist() == [True, True, True, False, True]
    corpus = Corpus("goethe", f"{GOETHE}Neues Glas. {GOETHE}", "", "", "", held_out_from=len(GOETHE))
    monkeypatch.setattr(tagging, "load_corpus", lambda _: corpus)
    lines = ran(tagging.main, "run", "--max_iters", 1).out.splitlines()
    assert [len(re.findall(r"\d%", line)) for line in lines] == [1, 2, 2, 2]


def test_answers_are_where_the_targets_say(small_bert, monkeypatch):
    _, _, tokenizer = small_bert
    monkeypatch.setattr(tagging, "LENGTH", 150)
    for part in (0, 1):
        own = {y for kind in tagging.KINDS for _, y in tagging.facts(kind, "known", "de")[part::2]}
        for row in tagging.asked(tokenizer, part, 9, seed=1):
            first, last = row.targets
            answer = tokenizer.decode(row.ids[first : last + 1].tolist()).strip()
            assert answer in own
            assert row.segments[first] == row.segments[last] == 1


def test_the_judge_knows_the_attention_and_its_gradient(small_bert, monkeypatch, ran):
    """In a model of one layer, the methods are what the formulas say, and the judge is the model itself."""
    _, model, _ = small_bert
    for parameter in model.eval().parameters():
        parameter.data *= 4
    ids = np.array([model.config.cls, 9, 11, model.config.mask, 12, model.config.sep])
    found = judge.answers(model, ids, 3)
    attention = look_inside(model, Tensor(ids[None])).attention
    np.testing.assert_allclose(found["attention"], attention[0].mean(0)[3], rtol=1e-5)
    np.testing.assert_allclose(found["rollout"], (attention[0].mean(0)[3] + np.eye(6)[3]) / 2, rtol=1e-5)
    assert found["relevance"].min() >= 0
    assert found["relevance"][3] >= 1
    fall = judge.falls(model, ids, 3)
    assert fall[3] == pytest.approx(0, abs=1e-5)
    changed = np.where(np.arange(6) == 2, model.config.mask, ids)
    before, after = (judge.logits(model, x[None], 3).numpy()[0] for x in (ids, changed))
    assert fall[2] == pytest.approx(before.max() - after[before.argmax()], abs=1e-5)
    monkeypatch.setattr(judge, "load_corpus", lambda name: Corpus(name, GOETHE * 3, "", "", ""))
    monkeypatch.setattr(judge, "TEXTS", 2)
    assert len(re.findall(r"\d%", ran(judge.main, "run").out)) == 6


def test_bags_of_words_are_written_into_the_table_of_a_model(workplace, monkeypatch, ran):
    manual_seed(0)
    bag = cbow.Bag(12, 8)
    options = cbow.CbowOptions(max_iters=60, learning_rate=0.1)
    assert cbow.train(bag, np.arange(200) % 12, options) < 0.1  # eight neighbours say which of the twelve it is
    before = saved_gpt(Path("run/last.safetensors"), CharTokenizer.train(GOETHE), dataset="goethe", tie_weights=False)
    monkeypatch.setattr(cbow, "load_corpus", lambda name: Corpus(name, GOETHE, "", "", ""))
    out = ran(cbow.main, "run", "--max_iters", 9, "--tokens", "a", "e", "--out", "new/last.safetensors").out
    assert [line[0] for line in out.splitlines()[2:]] == ["a", "e"]
    old, new = (load_checkpoint(Path(file)).weights for file in (before, "new/last.safetensors"))
    table = cbow.TABLE
    np.testing.assert_allclose((new[table] ** 2).mean(), (old[table] ** 2).mean(), rtol=1e-5)
    assert (new.pop(table) != old.pop(table)).all()
    assert all((new[name] == old[name]).all() for name in old)


# --- exercises ----------------------------------------------------------------------------------------------------

# A mistake in each answer: what is written in place of what, and a part of what the check says.
MISTAKES = [
    ("before[1:] = token[:-1]", "before[:] = token", "token after 3 1 2 3: yours is 3, it must be 1"),
    ("np.tril(np.exp(sharpness * (token @ before.T - 1)))", "np.exp(sharpness * (token @ before.T - 1))", "position 0"),
    ("            x = b.copy()\n", "            x = b\n", "a or b has changed"),
    ("a, b = blocks[layer](a), blocks[layer](b)", "b = blocks[layer](b)", "which must give a's end"),
    ("return lengths**2 /", "return lengths /", "for a feature and its opposite"),
    (".sum(axis=1)", ".sum(axis=0)", "for two features of one direction"),
]


MISTAKES = [(15, ["induction_head", "patched", "dimensions"], *mistake) for mistake in MISTAKES]
MISTAKES += [
    (23, ["leaks"], "changed = tokens.copy()", "changed = tokens", "the tokens have been changed"),
    (23, ["leaks"], "in range(t)", "in range(t + 1)", "another token at 4: yours is [4], it must be []"),
    (23, ["company"], "predict([prompt])[0]", "together[0]", "a sound model: yours is [1], it must be []"),
    (23, ["stale"], "for n in range(1,", "for n in range(2,", "planted: yours is [2, 3, 4, 5, 6], it must be [1, 2"),
    (23, ["A", "B", "C"], "C = 6", "C = 14", "it is not 14"),
]


@pytest.mark.parametrize(("chapter", "names", "right", "wrong", "sentence"), MISTAKES)
def test_a_wrong_answer_is_told_what_is_wrong(chapter, names, right, wrong, sentence, workplace):
    for file in check.chapters()[chapter].glob("*.py"):
        (workplace / file.name).write_bytes(file.read_bytes())
    text = (workplace / "solution.py").read_text(encoding="utf-8")
    assert right in text
    (workplace / "answer.py").write_text(text.replace(right, wrong, 1), encoding="utf-8")
    outcomes = check.check(workplace, "answer.py", names)
    wrongs = [outcome.wrong for outcome in outcomes if not outcome.is_right]
    assert len(wrongs) == 1
    assert sentence in wrongs[0]


# --- chapter 23: its table is what the script prints ------------------------------------------------------------------


def test_the_tables_of_methods_have_every_exhibit_once_and_say_what_is_left():
    page = (check.chapters()[23] / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.+?) \| ([●| ]+) \|$", page, re.MULTILINE)
    left = re.findall(r"^\| (\d+) \| (.+?) \| \[`(\w+)`\]", page, re.MULTILINE)
    titles = {int(number): title for number, title, _ in rows + left}
    assert len(rows) + len(left) == len(titles)
    assert titles == {number: exhibit.title for number, exhibit in enumerate(EXHIBITS, start=1)}
    caught = np.array([[cell == "●" for cell in cells.split(" | ")] for *_, cells in rows])
    assert caught.any(1).all()
    assert f"caught, of {len(EXHIBITS)} | {' | '.join(map(str, caught.sum(0)))} |" in page
    assert all(EXHIBITS[int(number) - 1].tests[0].endswith(f"::{test}") for number, _, test in left)


@pytest.mark.slow
def test_the_table_of_methods_is_what_the_script_prints(capsys):
    folder = check.chapters()[23]
    assert check.load(folder / "methods.py").main([]) == 0
    assert capsys.readouterr().out in (folder / "README.md").read_text(encoding="utf-8")


# --- chapter 14: the settings of its table, what is trained, which differences are marked -----------------------------


ROOT = Path(__file__).parents[2]


@pytest.fixture
def parts(monkeypatch):
    """The program, with a smaller model, and a smaller evaluation."""
    module = check.load(ROOT / "docs" / "course" / "14-today" / "parts.py")
    monkeypatch.setattr(module, "SIZES", {"block_size": 8, "n_layer": 1, "n_head": 2, "n_embd": 8})
    for name, value in {"LENGTH": 9, "ROWS": 2, "EVALUATED": 2, "WARMUP": 0}.items():
        monkeypatch.setattr(module, name, value)
    return module


def test_the_first_row_is_the_default_and_the_last_is_gpt_2(parts):
    preset = tomllib.loads((ROOT / "presets" / "goethe.toml").read_text(encoding="utf-8"))
    optimizer, schedule = preset["optimizer"] == "muon", preset["schedule"] == "trapezoid"
    ours = preset | {"muon": optimizer, "falls_to_0": schedule and preset["min_lr"] == 0}
    assert {name: ours[name] for name in parts.PARTS} == parts.PARTS
    gpt2 = parts.PARTS | parts.SETTINGS["GPT-2"]
    assert not gpt2.pop("muon")
    assert not gpt2.pop("falls_to_0")
    assert GPTConfig(9, **parts.SIZES, **gpt2) == GPTConfig(9, **parts.SIZES)  # whose defaults are GPT-2's


def test_every_setting_trains_another_model(parts):
    ids = np.arange(80) ** 2 % 7
    found = {name: tuple(parts.bits(change, ids, 3, seed=1)) for name, change in parts.SETTINGS.items()}
    assert len(set(found.values())) == len(found)
    assert tuple(parts.bits({}, ids, 3, seed=1)) == found["all parts"]
    assert tuple(parts.bits({}, ids, 3, seed=2)) != found["all parts"]
    assert len({parts.bits(change, ids, 2, 1)[1] for change in ({}, {"rate": 0.1}, {"n_head": 1})}) == 3


def test_a_model_learns_the_first_three_quarters_only(parts):
    learned, held_out = parts.bits({}, np.array([0, 1, 2] * 30 + [2, 1, 0] * 10), 60, seed=1)
    assert learned < np.log2(3) / 2  # that of equal probabilities is log2(3)
    assert held_out > np.log2(3)


def test_a_difference_within_two_standard_errors_is_marked(parts, monkeypatch, tmp_path, capsys):
    """The deviation of 1.0 and 1.2 is 0.141, and two standard errors of the difference of two such means are 0.28."""
    means = {"all parts": (1.1, 1.1), "GELU": (1.37, 1.39), "AdamW": (0.81, 0.83)}
    monkeypatch.setattr(parts, "SETTINGS", {name: {"mean": mean} for name, mean in means.items()} | {"all parts": {}})

    def bits(change, ids, max_iters, seed):
        assert (ids.tolist(), max_iters) == ([1, 2, 0, 0, 3, 2, 0], 9)  # joined by an empty line
        return [mean + 0.2 * seed - 0.3 for mean in change.get("mean", means["all parts"])]

    monkeypatch.setattr(parts, "bits", bits)
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file, text in zip(files, ("ab", "cb\n"), strict=True):
        file.write_text(text, encoding="utf-8")
    command = ["--seeds", "2", "--max_iters", "9", *map(str, files)]
    monkeypatch.setattr(parts, "LENGTH", 0)
    assert parts.main(command) == 0
    lines = [re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["7 characters, 9 updates: bits per character"],
        ["", "learned", "held out"],
        ["all parts", "1.100 ± 0.141", "1.100 ± 0.141"],
        ["GELU", "1.370 ± 0.141 ≈", "1.390 ± 0.141"],
        ["AdamW", "0.810 ± 0.141", "0.830 ± 0.141 ≈"],
    ]


def test_evolution_finds_the_best_setting_sooner_than_chance():
    evolve = check.load(ROOT / "docs" / "course" / "14-today" / "evolve.py")
    best = {name: values[-1] for name, values in evolve.GENES.items()}

    def wrong_genes(setting, seed):
        return sum(setting[name] != value for name, value in best.items())

    chance, evolution = (evolve.search(wrong_genes, 160, 1, evolves) for evolves in (False, True))
    assert chance[: evolve.POPULATION] == evolution[: evolve.POPULATION]
    assert min(found for found, _ in evolution) == 0 < min(found for found, _ in chance)
    parent = evolve.drawn(random.Random(0))
    assert sum(parent[name] != value for name, value in evolve.child(parent, random.Random(1)).items()) == 1


# --- chapter 17: what a model knows before it has learned anything ----------------------------------------------------


def test_a_model_takes_what_it_has_learned_to_other_classes(monkeypatch):
    transfer = check.load(ROOT / "docs" / "course" / "17-encoders" / "transfer.py")
    monkeypatch.setattr(transfer, "BATCH", 8)
    rng = np.random.default_rng(0)
    data = Pictures(rng.integers(0, 256, (20, 28, 28), np.uint8), np.arange(20, dtype=np.uint8) // 2)
    mixed = transfer.shuffled(data)
    assert (np.sort(mixed.pixels.reshape(20, -1)) == np.sort(data.pixels.reshape(20, -1))).all()
    assert (mixed.pixels[3:4] == transfer.shuffled(Pictures(data.pixels[3:4], data.labels[3:4])).pixels).all()
    for kind in transfer.KINDS:
        before = transfer.fresh(kind, 1)
        after = transfer.with_new_head(before, 2)
        old = before.state_dict()
        changed = {name for name, value in after.state_dict().items() if not np.array_equal(value, old[name])}
        assert changed == {"head.weight", "head.bias"}
        learned = transfer.learn(after, transfer.first(data, 2), 12, 1, 3e-3)
        assert transfer.share_right(learned, data) >= 10.0  # the two that it has learned from, of 20
        assert (before.head.weight.data == transfer.fresh(kind, 1).head.weight.data).all()


# --- chapter 17: the label as the last word, and which sentence follows -----------------------------------------------


def test_the_last_word_is_predicted_from_its_text_alone():
    last_word = check.load(ROOT / "docs" / "course" / "17-encoders" / "last_word.py")
    for settings in last_word.KINDS.values():
        model = last_word.LastWord(GPTConfig(vocab_size=9, block_size=8, n_embd=16, **settings)).eval()
        rows = [([1, 2, 3], 4), ([1, 2, 3, 5, 6], 7), ([8], 4)]
        together, words = model.next_words(rows, pad=0)
        assert words.numpy().tolist() == [4, 7, 4]
        for row, logits in zip(rows, together.numpy(), strict=True):
            np.testing.assert_allclose(logits, model.next_words([row], pad=0)[0].numpy()[0], atol=1e-6)


def test_endings_are_the_next_sentence_and_three_of_other_reviews():
    follows = check.load(ROOT / "docs" / "course" / "17-encoders" / "follows.py")
    reviews = [[f"this is sentence {n} of review {r} ." for n in range(4)] + ["too short"] for r in range(6)]
    found = list(follows.couples("\n\n".join("\n".join(review) for review in reviews), 5, seed=1))
    assert len({first.split()[6] for first, _ in found}) == len(found) == 5
    for first, (following, *others) in found:
        review = reviews[int(first.split()[6])]
        assert following == review[review.index(first) + 1]
        assert len(others) == 3
        assert not {*others} & {*review}
    header, *rows = follows.table("\n\n".join("\n".join(review) for review in reviews), 4, seed=1)
    assert header.split("\t") == ["text1", "text2", "label"]
    for (first, endings), row in zip(found, rows, strict=False):
        text1, text2, label = row.split("\t")
        assert (text1, label == "next") == (first, text2 == endings[0])
    assert [row.split("\t")[2] for row in rows] == ["next", "other"] * 2
    assert follows.by_words("a good film", ["a bad film", "nothing"]).tolist() == [2 / 3, 0]


# --- chapter 11: sentences that nobody has translated -----------------------------------------------------------------


def test_loose_sentences_are_translated_back(workplace, monkeypatch, capsys):
    back, learned = check.load(ROOT / "docs" / "course" / "11-translation" / "back.py"), {}
    (workplace / "pairs.tsv").write_text("".join(f"das ist {n}\tthis is {n}\n" for n in range(60)), encoding="utf-8")
    monkeypatch.setattr(back, "trained", lambda name, pairs, *more: learned.setdefault(name, [*pairs]))
    monkeypatch.setattr(back, "translated", lambda model, sentences: [f"back {sentence}" for sentence in sentences])
    assert back.main("--pairs pairs.tsv --train_pairs 20 --loose 30".split()) == 0
    few, true = learned["few"], learned["true"]
    assert few == learned["opposite"] == true[:20]
    assert len({*true}) == 50
    assert learned["network"] == few + [(f"back {target}", target) for _, target in true[20:]]
    assert [target for _, target in learned["counting"]] == [target for _, target in true]
    assert learned["counting"][20][0].split()[1:] == true[20][0].split()[1:]
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if ": " in line] == [*back.WAYS]
