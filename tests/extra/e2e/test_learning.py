"""The page in which a GPT learns: its numbers are those of nano.py; it works by mouse, by keyboard and on a phone."""

import math

import numpy as np
import pytest

import nano
from extra.explorer.learning import SETTINGS
from extra.studies import learn

pytestmark = pytest.mark.e2e

LETTERS = [chr(ord("a") + i) for i in range(10)]


@pytest.fixture
def page(tmp_path, opened):
    """Opens the page, and waits for something; width, scheme and a script to run before its own can be given."""

    def open_page(ready="true", **settings):
        learn.main([str(tmp_path / "learn.html")])
        found = opened(tmp_path / "learn.html", **settings)
        until(found, ready)
        return found

    return open_page


def until(page, condition, **limit):
    """Wait for something that the page's scripts can see. A string alone would be evaluated, which the page forbids."""
    page.wait_for_function(f"() => {condition}", **limit)


@pytest.fixture
def still(page):
    """The page, not training."""
    found = page("learning.report")
    found.evaluate("learning.set({ running: false })")
    return found


class Changed(nano.GPT):
    """nano.py's GPT without what its shape says: the mask, the residual connections."""

    def logits(self, ids):
        if self.shape["residual"]:
            return super().logits(ids)
        table = self.weights["token_embedding.weight"]
        x = table[ids]
        for i in range(self.shape["n_layer"]):
            x = self.attention(nano.norm(x), f"blocks.{i}.mixer")
            x = self.linear(self.linear(nano.norm(x), f"blocks.{i}.mlp.up").relu() ** 2, f"blocks.{i}.mlp.down")
        return nano.norm(x) @ table.swapaxes(0, 1)

    def attention(self, x, name):
        if self.shape["mask"]:
            return super().attention(x, name)
        batch, length, width = x.data.shape
        heads = (batch, length, self.shape["n_head"], width // self.shape["n_head"])
        q, k, v = (self.linear(x, f"{name}.{part}").reshape(*heads) for part in ("query", "key", "value"))
        q, k, v = (part.swapaxes(1, 2) for part in (nano.turned(nano.norm(q)), nano.turned(nano.norm(k)), v))
        p = nano.softmax(q @ k.swapaxes(-1, -2) * self.shape["attention_scale"])
        return self.linear((p @ v).swapaxes(1, 2).reshape(batch, length, width), f"{name}.output")


def random_model(n_layer, n_head, n_embd, **changes):
    """A model with large random weights."""
    shape = {"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, "block_size": 16, "attention_scale": 0.3}
    model, rng = Changed(LETTERS, shape | {"mask": True, "residual": True} | changes), np.random.default_rng(0)
    for weight in model.weights.values():
        weight.data[...] = rng.standard_normal(weight.data.shape) * 0.2
    return model


def in_page(page, model, script, *, batch=1, **values):
    """Run a script of the page, in which `model` is this model."""
    weights = {name: weight.data.ravel().tolist() for name, weight in model.weights.items()}
    values |= {"characters": model.characters, "shape": model.shape, "weights": weights, "batch": batch}
    begin = """const model = new GPT(given.characters, given.shape, given.batch);
      for (const [name, data] of Object.entries(given.weights)) model.weights[name].data.set(data);"""
    return page.evaluate(f"(given) => {{ {begin} {script} }}", values)


# --- the numbers ------------------------------------------------------------------------------------------------

MODELS = {
    "one of each": ((1, 1, 4), {}, 1, 1),
    "sizes that fill no block": ((3, 2, 12), {}, 3, 5),
    "as in the page": ((2, 4, 32), {}, 4, 16),
    "no mask": ((2, 2, 16), {"mask": False}, 2, 9),
    "no residual": ((2, 2, 16), {"residual": False}, 2, 9),
    "neither": ((1, 2, 8), {"mask": False, "residual": False}, 3, 4),
}


@pytest.mark.parametrize(("sizes", "changes", "batch", "length"), MODELS.values(), ids=MODELS)
def test_loss_gradients_and_ten_updates_are_those_of_nano_py(still, sizes, changes, batch, length):
    model = random_model(*sizes, **changes)
    ids = np.random.default_rng(1).integers(0, len(LETTERS) + 1, (batch, length + 1))
    inputs, targets = ids[:, :-1], ids[:, 1:]
    found, gradients, losses = in_page(
        still,
        model,
        """const step = () => model.loss(given.inputs, given.targets, given.batch, given.length);
        const loss = step();
        model.backward(given.batch, given.length);
        const gradients = Object.entries(model.weights).map(([name, { grad }]) => [name, Array.from(grad)]);
        const optimizer = new AdamW(model);
        const losses = Array.from({ length: 10 }, () => {
          const loss = step();
          model.backward(given.batch, given.length);
          optimizer.step(0.01);
          return loss;
        });
        return [loss, gradients, losses];""",
        batch=batch,
        length=length,
        inputs=inputs.ravel().tolist(),
        targets=targets.ravel().tolist(),
    )
    loss = model.loss(inputs, targets)
    loss.backward()
    assert found == pytest.approx(loss.data.item(), rel=1e-4)
    assert [name for name, _ in gradients] == [*model.weights]
    for name, gradient in gradients:
        right = model.weights[name].grad.ravel()
        assert np.abs(np.array(gradient) - right).max() <= 1e-4 * np.abs(right).max(), name
        model.weights[name].grad = None
    optimizer, expected = nano.AdamW([*model.weights.values()]), []
    for _ in range(10):
        loss = model.loss(inputs, targets)
        loss.backward()
        optimizer.step(0.01)
        expected.append(loss.data.item())
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def test_it_writes_what_nano_py_writes(still):
    model = random_model(2, 2, 16)
    greedy, drawn = in_page(
        still,
        model,
        """const ids = model.encode("ab?");
        for (let i = 0; i < 30; i++) ids.push(model.sample(ids, 0));
        const drawn = given.numbers.map((u) => model.sample(model.encode("abc"), 0.7, () => u));
        return [ids.slice(3).map((id) => model.characters[id]).join(""), drawn];""",
        numbers=(numbers := np.linspace(0, 0.999, 60).tolist()),
    )
    assert greedy == "".join(nano.write(model, "ab?", 30, temperature=0))
    x = model.logits(np.array([nano.encode(model, "abc")])).data[0, -1, :-1].astype(np.float64) / 0.7
    shares = np.cumsum(np.exp(x - x.max()) / np.exp(x - x.max()).sum())
    assert drawn == [int(np.searchsorted(shares, u, side="right")) for u in numbers]
    assert len({*drawn}) > 3


def test_it_begins_as_nano_py_does(still):
    """Same names and shapes in the same order; the same deviations; the logarithm of V as the first loss."""
    found = still.evaluate(
        """() => {
          const { weights } = new GPT(learning.characters, learning.settings.shape, 1);
          const deviation = (data) => Math.sqrt(data.reduce((sum, x) => sum + x * x, 0) / data.length);
          return Object.entries(weights).map(([name, { shape, data }]) => [name, shape, deviation(data)]);
        }"""
    )
    characters = still.evaluate("learning.characters")
    assert characters == sorted(set(still.evaluate("learning.settings.text")))
    expected = nano.GPT(characters, SETTINGS["shape"])
    shapes = [(name, [*weight.data.shape]) for name, weight in expected.weights.items()]
    assert [(name, shape) for name, shape, _ in found] == shapes
    for name, _, deviation in found:
        assert deviation == pytest.approx(expected.weights[name].data.std(), rel=0.1)
    assert still.evaluate("learning.curve.tests[0][1]") == pytest.approx(math.log(len(characters) + 1), abs=0.1)
    assert still.evaluate("learning.parameters") == sum(weight.data.size for weight in expected.weights.values())


def test_the_picture_of_the_characters_is_along_the_principal_components(still):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 8)) * [9, 5, 1, 1, 1, 1, 1, 1] @ np.linalg.qr(rng.normal(size=(8, 8)))[0] + 3
    _, sizes, directions = np.linalg.svd(x - x.mean(0))
    found = still.evaluate(
        """(table) => {
          const { points, directions, shares } = widest(Float32Array.from(table), 20, 8, []);
          return [points, directions.map((w) => Array.from(w)), shares];
        }""",
        x.ravel().tolist(),
    )
    np.testing.assert_allclose(np.abs(np.sum(found[1] * directions[:2], axis=1)), 1, atol=1e-4)
    np.testing.assert_allclose(found[0], (x - x.mean(0)) @ np.transpose(found[1]), atol=1e-3)
    np.testing.assert_allclose(found[2], sizes[:2] ** 2 / np.sum(sizes**2), rtol=1e-4)


# --- using it ---------------------------------------------------------------------------------------------------


def pressed(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def test_it_starts_by_itself_and_shows_all_that_it_learns(page):
    page = page()
    until(page, "document.querySelector('#bench polyline.first')?.points.length > 2", timeout=5000)
    until(page, "document.querySelector('#bench .sample').textContent.length > 20", timeout=5000)
    until(page, "learning.report?.step >= 60")
    page.get_by_text("26,336 parameters learn in a worker, a second thread.").wait_for()
    first, later = page.evaluate("[learning.curve.losses[0], learning.loss]")
    assert later < first - 1
    step, loss, bits, held_out, speed = page.locator("#loss .figures b").all_inner_texts()
    assert int(step) >= 60
    assert float(bits) == pytest.approx(float(loss) / math.log(2), abs=0.002)
    assert float(held_out) < first
    assert float(speed) > 0
    assert page.locator("#bench polyline.first").get_attribute("points").count(",") > 4
    assert f"ln 55 = {math.log(55):.2f}" in page.locator("#bench svg").text_content()
    page.locator("#writes").scroll_into_view_if_needed()
    until(page, "learning.report.sample.text.length === 220")
    page.get_by_text("In bold: words of the text").wait_for()
    assert page.locator("#writes tbody tr").first.inner_text().startswith("0")
    page.locator("#characters").scroll_into_view_if_needed()
    page.locator("#characters text").first.wait_for()
    assert page.locator("#characters text").count() == 54


def test_attention_is_that_of_the_model_and_each_row_sums_to_1(page):
    page = page("learning.look")
    T, maps = page.evaluate("[learning.settings.line.length, learning.look.attention.map((p) => Array.from(p))]")
    weights = np.reshape(maps, (2, 4, T, T))
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert not np.triu(weights, 1).any()
    pressed(page, "No mask")
    until(page, "learning.settings.run === 2 && learning.look")
    weights = np.reshape(page.evaluate("learning.look.attention.map((p) => Array.from(p))"), (2, 4, T, T))
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert np.triu(weights, 1).any()


def test_pause_run_and_start_again(page):
    page = page("learning.report?.step >= 60")
    pressed(page, "Pause")
    page.get_by_text("Paused after step").wait_for()
    step = page.evaluate("learning.report.step")
    page.wait_for_timeout(300)
    assert page.evaluate("learning.report.step") == step
    pressed(page, "Run")
    until(page, f"learning.report.step >= {step + 1}")
    before = page.evaluate("learning.curve.losses.slice(0, 20)")
    pressed(page, "Start again")
    until(page, "learning.settings.run === 2 && learning.curve.losses.length >= 20")
    assert page.evaluate("learning.curve.losses.slice(0, 20)") == before


CHINESE = "".join(map(chr, range(0x4E00, 0x4E00 + 700)))
TEXTS = {
    "too many characters": (CHINESE, "It has 700 different characters, and this page takes 250"),
    "no text": ("PK\x03\x04" * 300, "Something in it is no text: \\u{3}."),
}


@pytest.mark.parametrize(("text", "sentence"), TEXTS.values(), ids=TEXTS)
def test_a_text_that_cannot_be_learned_is_refused_with_a_sentence(still, text, sentence):
    still.evaluate("(text) => (document.querySelector('#bench textarea').value = text)", text)
    pressed(still, "Learn this text")
    assert sentence in still.locator("#bench textarea ~ .note").inner_text()
    assert still.evaluate("learning.settings.run") == 1


def test_a_reader_s_own_text_is_learned(page):
    page = page(width=390, scheme="dark")
    own = "</script><b>bold</b> \u202e😀 e\u0301 Wortwortwort" + "Wort" * 200 + "\r\n" + "<img src=x onerror=alert(1)>"
    scripts = page.locator("script").count()
    page.get_by_role("textbox", name="Text to learn").fill(own)
    pressed(page, "Learn this text")
    page.get_by_text("The model learns this text: ").wait_for()
    until(page, "learning.settings.run === 2 && learning.report?.run === 2 && learning.report.step > 20")
    characters = page.evaluate("learning.characters")
    assert {"😀", "\u202e", "é"} <= {*characters}
    assert "\r" not in characters
    page.get_by_role("textbox", name="begin with").fill("Wort ß")
    assert "Not in the text: ß." in page.locator("#writes").inner_text()
    until(page, "document.querySelector('#bench .sample').textContent.startsWith('Wort ß')")
    assert [page.locator(tag).count() for tag in ("script", "img", "b:has-text('bold')")] == [scripts, 0, 0]


def test_a_link_restores_text_and_settings(page, opened, tmp_path):
    """And what an address asks for that there is not is left as it was."""
    kept = "Object.entries(learning.settings).filter(([name]) => !['run', 'running'].includes(name))"
    own = "Wort für Wort,\nund 100 % & mehr #1. " * 30
    page = page()
    page.get_by_role("textbox", name="Text to learn").fill(own)
    pressed(page, "Learn this text")
    pressed(page, "No mask")
    pressed(page, "Rate × 30")
    page.get_by_role("textbox", name="begin with").fill("Wort & ")
    for name in ("layers", "learning rate", "temperature"):
        page.get_by_role("slider", name=name).press("ArrowLeft")
    until(page, "learning.settings.shape.n_layer === 1")
    pressed(page, "Copy link")
    other = opened(tmp_path / "learn.html", fragment=page.evaluate("location.hash"))
    until(other, "learning.report?.step > 2")
    assert other.evaluate(kept) == page.evaluate(kept)
    assert other.evaluate("[learning.settings.text, learning.settings.prompt]") == [own, "Wort & "]
    assert other.get_by_role("textbox", name="Text to learn").input_value() == own
    assert other.locator("[aria-pressed=true]").all_inner_texts()[:2] == ["Rate × 30", "No mask"]
    other.evaluate("location.hash = 'text=short&n_layer=99&n_head=x&steps=-1&rate=7&temperature=9&break=it'")
    until(other, "window.learning?.settings.text.startsWith('Wer reitet')")
    asked = other.evaluate("[learning.settings, learning.settings.shape]")
    for found, first in zip(asked, (SETTINGS, SETTINGS["shape"]), strict=True):
        assert {name: found[name] for name in first if name != "shape"} == {
            n: v for n, v in first.items() if n != "shape"
        }


def test_the_explorer_opens_with_the_weights_as_they_are(page):
    """Its weights are those of the worker in float16, and its logits are nano.py's with them."""
    page = page("learning.report?.step >= 20")
    complaints = []
    page.context.on("console", lambda message: complaints.append(message.text))
    page.context.on("weberror", lambda error: complaints.append(str(error.error)))
    page.evaluate("learning.set({ running: false })")
    page.get_by_text("Paused after step").wait_for()
    with page.expect_popup() as popup:
        pressed(page, "Look inside")
    explorer = popup.value
    until(explorer, "window.session?.seen.length > 3")
    sent = page.evaluate("Array.from(learning.look.weights)")
    found = explorer.evaluate("Object.values(session.model().weights).flatMap(({ data }) => Array.from(data))")
    np.testing.assert_allclose(found, np.float16(sent), rtol=2**-10, atol=2**-24)
    model, begin = nano.GPT(page.evaluate("learning.characters"), SETTINGS["shape"] | {"attention_scale": 1.5}), 0
    for weight in model.weights.values():
        weight.data[...] = np.reshape(found[begin : begin + weight.data.size], weight.data.shape)
        begin += weight.data.size
    ids, logits = explorer.evaluate("[session.read, session.seen.map(({ logits }) => Array.from(logits))]")
    assert "".join(model.characters[i] for i in ids) == page.evaluate("learning.settings.line")
    np.testing.assert_allclose(logits, model.logits(np.array([ids])).data[0], atol=1e-4)
    assert explorer.locator("h2").all_inner_texts()[0] == "The whole model"
    assert complaints == []


def test_without_a_worker_the_page_s_own_thread_learns_and_the_page_answers(page):
    page = page(before="window.Worker = class { constructor() { throw new Error('refused'); } }")
    page.get_by_text("parameters learn in the page's own thread.").wait_for()
    until(page, "learning.report?.step >= 20")
    pressed(page, "Pause")
    page.get_by_text("Paused after step").wait_for()


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_it_fits_a_phone_in_light_and_dark_and_axe_finds_nothing(page, fits, width, scheme):
    page = page("learning.report?.step >= 30", width=width, scheme=scheme)
    page.evaluate("learning.set({ running: false })")
    page.get_by_text("Paused after step").wait_for()
    box = page.locator("#bench").bounding_box()
    assert box["y"] + box["height"] <= (800 if width > 1000 else 844)  # all of it is on the first screen
    fits(page, "bench", "loss", "writes", "attends", "characters", "size")
    bar = page.locator(".sticky.top").bounding_box()
    assert bar["y"] == 0
    assert bar["height"] < 120
