"""The pages of encoders and translations in a browser: their numbers, and the way through them."""

from pathlib import Path

import numpy as np
import pytest

import sample
from extra.encoders.family import BERT, VIT
from extra.encoders.looking import as_input, rollout
from extra.families import SEQ2SEQ
from extra.inside import look_inside
from extra.inside.seq2seq import attention_weights
from seq2seq.translate import translate
from tests.extra.explorer.test_encoders import PICTURE, TEXT, saved_bert, saved_vit, with_picture
from tests.extra.explorer.test_translation import saved_translator
from tests.extra.inside.test_seq2seq import TODAY
from tinygrad_lite import Tensor

pytestmark = pytest.mark.e2e
LOOKS = [(1100, "light"), (390, "dark")]


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_hidden_words_and_what_a_token_attends_to(workplace, opened, fits, width, scheme):
    path = saved_bert()
    sample.main([path, "--start", TEXT, "--explain", "page.html"])
    page = opened(Path("page.html"), width, scheme)
    data = page.evaluate("readData()")
    found = look_inside(BERT.load(Path(path)).make_model(), Tensor([data["ids"]]))
    weights = np.reshape(page.evaluate("Array.from(readHalves('recorded-attention'))"), found.attention.shape)
    np.testing.assert_allclose(weights, found.attention, atol=1e-3)

    first = page.locator("#words table").first.locator("tbody tr").first.inner_text().split()
    word, probability = data["masks"][0]["words"][0]
    assert first[0] == word
    assert float(first[1].rstrip("%")) == pytest.approx(100 * probability, abs=0.06)

    start = data["masks"][0]["position"]
    assert page.locator("#tokens .tokens [aria-pressed=true]").inner_text() == "[MASK]"
    page.locator("#tokens .tokens button").nth(start).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert f"position {start + 2} of {len(data['ids'])}" in page.locator("#tokens").inner_text()
    page.get_by_role("button", name="layer 1, head 2").click()
    row = found.attention[0, 1, start + 1]
    said = page.locator("#attends").inner_text()
    assert said.startswith(f"{data['tokens'][start + 1]} (position {start + 2}) attends to ")
    assert said.split("attends to ")[1].startswith(data["tokens"][row.argmax()])
    assert f"{100 * row.max():.1f}"[:3] in said
    below = np.delete(found.attention[0, 1, :, start + 1], start + 1)
    assert page.locator("#attention svg.below path").count() == (below > 0.01).sum()
    assert f"{data['added'][1][0][start + 1]:.2f}" in page.locator("#stream").inner_text()
    fits(page, "attention")


def test_what_each_token_changes(workplace, opened, fits):
    path = saved_bert(objective="labels", labels="bad|</b>|good")
    sample.main([path, "--start", "Es irrt der", "--explain", "p.html"])
    page = opened(Path("p.html"), 390, "dark")
    labels = page.evaluate("readData()")["labels"]
    page.get_by_role("group", name="Labels").get_by_role("button").nth(1).focus()
    page.keyboard.press("Enter")
    tokens = page.get_by_role("group", name="Tokens; focus one to see its change").get_by_role("button")
    tokens.nth(1).focus()
    change = 100 * (labels["probabilities"][1] - labels["hidden"][1][1])
    said = page.locator("#changes").inner_text()
    assert f"{labels['names'][1]} would have" in said
    assert f"{'−' if change < 0 else '+'}{abs(change):.2f} percentage points" in said
    assert page.evaluate("(one) => one.style.backgroundColor", tokens.nth(1).element_handle()).startswith("rgba")
    page.keyboard.press("ArrowLeft")
    assert "never hidden" in page.locator("#changes").inner_text()
    fits(page, "labels")


@pytest.mark.parametrize(("pooling", "width", "scheme"), [("cls", 1100, "dark"), ("mean", 390, "light")])
def test_a_patch_shows_what_it_attends_to(workplace, opened, fits, monkeypatch, pooling, width, scheme):
    with_picture(monkeypatch)
    path = saved_vit(pooling=pooling)
    sample.main([path, "--image", "test:1", "--explain", "page.html"])
    page = opened(Path("page.html"), width, scheme)
    model = VIT.load(Path(path)).make_model()
    attention = look_inside(model, as_input(model, PICTURE)).attention
    first = int(pooling == "cls")
    page.get_by_role("button", name="layer 2, head 1").click()

    def check(who, weights):
        for panel, row in (("#attends", weights[0][first:]), ("#rolled", weights[1][first:])):
            said = page.locator(panel).inner_text()
            strongest = f"row {row.argmax() // 3 + 1}, column {row.argmax() % 3 + 1} ("
            assert said.startswith(who)
            assert said.split("patches in ")[1].startswith(strongest)

    both = (attention[1, 0], rollout(attention))
    if pooling == "cls":
        check("The class token", [rows[0] for rows in both])
        assert "The class token gets" in page.locator("#attends").inner_text()
    else:
        check("The mean of all patches", [rows.mean(0) for rows in both])
    assert page.locator("#picture tr.chosen").inner_text().startswith("b ← the true label")
    patches = page.get_by_role("group", name="Patches under the attention").get_by_role("button")
    patches.nth(4).click()
    check("The patch in row 2, column 2", [rows[4 + first] for rows in both])
    page.keyboard.press("ArrowDown")
    check("The patch in row 3, column 2", [rows[7 + first] for rows in both])
    fits(page, "looks")


# --- a translation: its weights, its tree, and the way through it by keyboard -----------------------------------------


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_a_translation_is_walked_through(workplace, opened, fits, width, scheme):
    path = saved_translator(Path("t.safetensors"))
    sample.main([str(path), "--start", "ab $cab", "--beam", "3", "--explain", "page.html"])
    page = opened(Path("page.html"), width, scheme)
    trained = SEQ2SEQ.load(path)
    data = page.evaluate("readData()")
    target = trained.tokenizer.encode("".join(data["target"][:-1]).replace("·", " "))
    found = attention_weights(trained.make_model(), trained.tokenizer, "ab $cab", target)
    weights = page.evaluate("Array.from(readHalves('recorded-attention'))")
    np.testing.assert_allclose(np.reshape(weights, data["shape"]), found.weights, atol=1e-3)

    assert page.locator("#beam .node").count() == len(data["nodes"])
    step = page.get_by_role("slider", name="Step")
    step.focus()
    page.keyboard.press("ArrowRight")
    assert step.get_attribute("aria-valuetext") == f"2 of {len(data['target'])}"
    page.get_by_role("button", name="layer 2, head 2").click()
    top = found.weights[1, 1, 1]
    said = page.locator("#looks").inner_text()
    assert f"{data['source'][top.argmax()]}" in said.split("looks at ")[1][:3]
    assert f"{100 * top.max():.0f}"[:2] in said

    page.mouse.move(0, 0)  # what is under the pointer is told, also when the page scrolls
    number = next(i for i, node in enumerate(data["nodes"]) if node["fate"] == "dropped")
    page.locator("#beam .node").nth(number).focus()
    assert "not among the" in page.locator("#fate").inner_text()
    fits(page, "beam")


@pytest.mark.parametrize("settings", [{}, {"norm_first": False, "positions": "learned"}, TODAY], ids=str)
def test_what_is_typed_is_translated_as_in_python(workplace, opened, settings):
    path = saved_translator(Path("t.safetensors"), **settings)
    sample.main([str(path), "--start", "ab $cab", "--explain", "page.html"])
    page, trained = opened(Path("page.html")), SEQ2SEQ.load(path)
    model = trained.make_model()
    for parameter in model.parameters():
        parameter.data[...] = parameter.data.astype(np.float16)
    box = page.get_by_label("Your own")
    for typed in ("c", "dd  ab$ ", "$ bé " + 9 * "abcd"):
        box.fill(typed)
        sentence = " ".join(typed.split())
        [[found]] = translate(model, trained.tokenizer, [sentence])
        expected = attention_weights(model, trained.tokenizer, sentence, found.tokens)
        # Until it has read what is typed, the page shows the sentence before, whose translation can be the same.
        page.wait_for_function("(n) => walk.data.rows(0, 0)[0].length === n", arg=expected.weights.shape[-1])
        assert page.locator("#sentences b").inner_text() == found.text
        assert ("é" in page.locator("#sentences .note").inner_text()) == ("é" in typed)
        assert page.evaluate("walk.data.target.length") == len(found.tokens)
        weights = page.evaluate(
            "[0, 1].map((l) => [0, 1].map((h) => walk.data.rows(l, h).map((row) => Array.from(row))))"
        )
        np.testing.assert_allclose(weights, expected.weights[:, :, : len(found.tokens)], atol=1e-4)
        assert "recorded" in page.locator("#beam").inner_text()
    box.fill("")  # then the recording is back
    assert page.locator("#beam .node").count() > 1
