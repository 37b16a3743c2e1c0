"""docs/course/run.py: the learner's answers train a GPT, what is blank is replaced, and what is wrong is named."""

import shutil

import pytest

from docs.course import run

check = run.check


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A copy of the course's chapters, of which every exercise is solved."""
    for folder in check.chapters().values():
        copy = shutil.copytree(folder, tmp_path / folder.name)
        shutil.copy(copy / "solution.py", copy / "exercise.py")
    monkeypatch.setattr(check, "COURSE", tmp_path)
    monkeypatch.setattr(run, "MERGES", 5)
    return check.chapters()


def losses(answers: run.Answers, steps: int = 2) -> list[float]:
    """The losses of a few updates, and one evaluation and a short text, so that every part is called."""
    text = "Mein Sohn, mein Sohn, ich seh es genau: Es scheinen die alten Weiden so grau. " * 2
    tokens = run.Tokens(answers, text)
    model = run.Model(answers, len(tokens.pieces), seed=1)
    found = run.train(model, tokens.encode(text), steps, seed=1)
    run.write(model, tokens, "Mein", 3, seed=1)
    return [*found, run.held_out_bits(model, tokens, "Mein Sohn, es ist")]


def test_the_solutions_learn_what_the_project_s_functions_learn(course):
    """In float64, so that only the order of sums differs."""
    solved = run.Answers("solution.py")
    for folder in course.values():
        shutil.copy(run.Path(run.__file__).parent / folder.name / "exercise.py", folder)
    blank = run.Answers("exercise.py")
    assert solved.right.keys() == run.EXERCISES.keys()
    assert (blank.right, blank.wrong, solved.wrong) == ({}, {}, {})
    assert losses(solved) == pytest.approx(losses(blank), rel=1e-9)


# A mistake in each answer: what is written in place of what.
MISTAKES = {
    "next_merge": ("(-counts[pair]", "(counts[pair]"),
    "encode": ("i += 1", "i += 2"),
    "decode": ('errors="replace"', 'errors="ignore"'),
    "batch": ("+ 1", "+ 0"),
    "pick": ("np.add.at(dx, places, dy)", "dx[places] += dy"),
    "linear": ("dx = dy @ w.value", "dx = 2 * dy @ w.value"),
    "rms_norm": ("x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)", "x / np.sqrt(np.mean(x**2) + eps)"),
    "rms_norm_backward": ("r * (dh", "(dh"),
    "rotary": ("first * sin + second * cos", "first * sin - second * cos"),
    "causal_attention": ("** 0.5", "** 1.0"),
    "swiglu": ("(1 + np.exp(-gate))", "(1 + np.exp(gate))"),
    "block": ("mlp(mlp_norm(x))", "mlp(x)"),
    "cross_entropy": ("gradient[target] -= 1", "gradient[target] += 1"),
    "clip": ("min(1.0, limit / norm)", "(limit / norm)"),
    "adamw": ("- lr * decay * w", "- decay * w"),
    "trapezoid": ("begin = plateau * steps", "begin = plateau"),
    "bits_per_character": ("/ math.log(2)", "* math.log(2)"),
    "temperature": ("(1 / t)", "t"),
    "nucleus": ("total >= top_p", "total > top_p + 0.1"),
}


def test_a_mistake_in_any_answer_is_named(course, capsys):
    for name, (old, new) in MISTAKES.items():
        file = course[run.EXERCISES[name]] / "exercise.py"
        text = file.read_text(encoding="utf-8")
        begin = text.index(f"def {name}(")
        assert old in text[begin:], name
        file.write_text(text[:begin] + text[begin:].replace(old, new, 1), encoding="utf-8")
    assert MISTAKES.keys() == run.EXERCISES.keys()
    assert run.main(["--max_iters", "1"]) == 1
    out = capsys.readouterr().out
    for name, chapter in run.EXERCISES.items():
        names = [other for other, number in run.EXERCISES.items() if number == chapter]
        (wrong,) = [outcome.wrong for outcome in check.check(course[chapter], names=names) if outcome.name == name]
        assert wrong not in ("", check.BLANK)
        assert f"{name} (chapter {chapter}): wrong: {wrong}\n" in out
    assert f"0 of {len(MISTAKES)} parts are yours, {len(MISTAKES)} are wrong" in out


WRONG_IN_TRAINING = [
    ("rms_norm", "return x", "assert x.ndim < 3 or x.shape[1] < 20, x.ndim\n    return x", "line 8: AssertionError: 3"),
    ("causal_attention", "return", "if q.shape[-1] == 16: return q\n    return", "its result differs by "),
    ("rms_norm_backward", "return", "if len(h) > 100: return h\n    return", "its gradient differs by "),
    ("decode", "return", "if len(pieces) < 99: return 'Sohn'\n    return", " become 'Sohn', and not "),
]


@pytest.mark.parametrize(("name", "old", "new", "reason"), WRONG_IN_TRAINING)
def test_an_answer_that_only_its_check_finds_right_ends_the_training(course, name, old, new, reason):
    file = course[run.EXERCISES[name]] / "exercise.py"
    text = file.read_text(encoding="utf-8")
    begin = text.index('"""', text.index('"""', text.index(f"def {name}(")) + 3)
    file.write_text(text[:begin] + text[begin:].replace(old, new, 1), encoding="utf-8")
    answers = run.Answers("exercise.py")
    assert name in answers.right
    with pytest.raises(run.UserError, match=rf"{name} \(chapter \d+\) passes its check, but not in .*{reason}"):
        losses(answers, steps=1)


def test_answers_in_their_own_folder_come_first_and_what_cannot_be_run_is_named(course):
    answers = check.COURSE / "answers" / course[9].name / "exercise.py"
    answers.parent.mkdir(parents=True)
    answers.write_text("def clip(:", encoding="utf-8")
    wrong = run.Answers("exercise.py").wrong
    assert wrong.keys() == {"cross_entropy", "clip", "adamw"}
    assert wrong["clip"].startswith(f"{answers} cannot be run: line 1: SyntaxError")
