"""Five tasks, done in the browser as a reader would do them, with nothing but what the page shows."""

import re
from pathlib import Path

import pytest

import sample
from studies import learn

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A small model that has learned something: letters that repeat, a hundred updates."""
    import train

    folder = tmp_path_factory.mktemp("tasks")
    text = folder / "text.txt"
    text.write_text("Es irrt der Mensch, so lang er strebt. " * 200, encoding="utf-8")
    sizes = "--n_layer 2 --n_head 2 --n_embd 16 --block_size 32 --batch_size 8 --max_iters 150 --eval_interval 150"
    train.main(["goethe-char", "--text", str(text), *sizes.split(), "--workers", "1", "--out_dir", str(folder / "run")])
    return folder / "run"


@pytest.fixture
def page(checkpoint, workplace, opened):
    sample.main([str(checkpoint), "--start", "Es irrt der Mensch, so lang", "--explain", "page.html"])
    return opened(Path("page.html"))


def number(text: str) -> float:
    """The first number in a text."""
    return float(re.search(r"[-−+]?\d+(\.\d+)?(e[+-]\d+)?", text)[0].replace("−", "-"))


def test_open_the_cell_with_the_largest_weight_and_read_its_product(page):
    page.get_by_role("link", name="Where it looks").click()
    page.wait_for_timeout(1500)
    grid = page.get_by_role("button", name="Map:")
    grid.press("Enter")
    said = page.locator("#attention .opened").inner_text()
    product, scale, score = (number(said.split(words)[1]) for words in ("products sum to ", "the scale ", "the score "))
    assert product * scale == pytest.approx(score, abs=0.01)
    e_score, total, weight = (number(said.split(words)[1]) for words in ("e^score is ", "they sum to ", "the weight, "))
    assert 100 * e_score / total == pytest.approx(weight, rel=0.02)


def test_patch_a_prompt_and_see_the_answer_change(page):
    page.get_by_role("link", name="From one text into another").click()
    page.wait_for_timeout(1500)
    page.get_by_role("textbox", name="Another text").fill("Es irrt der Mensch, so Mens")
    page.get_by_role("button", name="Patch").click()
    page.locator("#patching table").wait_for()
    said = page.locator("#patched").inner_text()
    answers = re.match(r"This text continues with (.+), the other one with (.+?)\.", said, re.DOTALL)
    assert answers[1].strip() != answers[2].strip()
    shares = [number(cell) for cell in page.locator("#patching td").all_inner_texts()]
    assert max(shares) > 20  # a single vector moves the answer


def test_find_who_wanted_a_token(page):
    page.get_by_role("link", name="Who wanted this token").click()
    page.wait_for_timeout(1500)
    rows = page.locator("#wanted tbody tr").all_inner_texts()
    values = [number(row.split("\t")[-1]) for row in rows]
    assert sum(values[:-1]) == pytest.approx(values[-1], abs=0.02)
    choices = page.locator("#wanted .controls .token")
    choices.nth(1).click()
    page.wait_for_timeout(200)
    assert page.locator("#wanted tbody tr").all_inner_texts() != rows


def test_switch_the_most_valuable_head_off_and_read_its_price(page):
    page.get_by_role("link", name="Where it looks").click()
    page.get_by_role("button", name="Measure every head").click()
    page.get_by_text("is missed most").wait_for()
    words = page.get_by_text("is missed most").inner_text()
    head = re.search(r"layer \d+, head \d+", words)[0]
    page.get_by_role("button", name=head).click()
    page.get_by_role("button", name="Switch this head off").click()
    page.get_by_text("now costs").wait_for()
    price = page.locator("#price").inner_text()
    assert number(price.split("instead of ")[1].split(":")[1]) == pytest.approx(
        number(words.split("without it, ")[1]), abs=0.002
    )


def test_train_until_the_samples_spell_words_of_the_text(workplace, opened):
    learn.main(["learn.html"])
    page = opened(Path("learn.html"))
    page.get_by_role("link", name="What it writes").click()
    for _ in range(120):
        page.wait_for_timeout(500)
        said = page.locator("#writes").inner_text()
        found = re.search(r"words of the text, (\d+) of (\d+)", said)
        if found and int(found[1]) >= 5:
            break
    assert int(found[1]) >= 5
