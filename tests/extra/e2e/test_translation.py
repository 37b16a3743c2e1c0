"""The page of a translation in a browser: its weights, its tree, and the way through it by keyboard."""

from pathlib import Path

import numpy as np
import pytest

import sample
from extra.families import SEQ2SEQ as FAMILY
from extra.inside.seq2seq import attention_weights
from tests.extra.explorer.test_translation import saved_translator

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(("width", "scheme"), [(1100, "light"), (390, "dark")])
def test_a_translation_is_walked_through(workplace, opened, drawn, accessible, tmp_path, width, scheme):
    path = saved_translator(Path("t.safetensors"))
    sample.main([str(path), "--start", "ab $cab", "--beam", "3", "--explain", "page.html"])
    page = opened(Path("page.html"), width, scheme)
    trained = FAMILY.load(path)
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

    number = next(i for i, node in enumerate(data["nodes"]) if node["fate"] == "dropped")
    page.locator("#beam .node").nth(number).focus()
    assert "not among the" in page.locator("#fate").inner_text()
    drawn(page)
    scrolled = page.locator("#beam .scroll").evaluate("(one) => one.scrollLeft")
    page.locator("#beam .node").nth(number).click()
    drawn(page)
    assert "not among the" in page.locator("#fate").inner_text()
    assert page.locator("#beam .node[aria-pressed=true]").count() == 1
    assert page.locator("#beam .scroll").evaluate("(one) => one.scrollLeft") == scrolled
    step.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#beam .node[aria-pressed=true]").count() == 0
    assert accessible(page) == []
    page.locator("#beam").screenshot(path=tmp_path / "beam.png")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
