"""The page of a GPT in a browser: its numbers are those of NumPy, and it works by mouse, by keyboard and on a phone.

pip install -e ".[dev,e2e]" && pytest -m e2e tests/extra/e2e
"""

import re
import sys
import time
import unicodedata
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import sample
from extra.chat.chat import Chat, Fitting, question_ids
from extra.gpt.trained import load_trained
from extra.inside.gpt import look_inside
from extra.pairs.answering import END
from extra.studies.baselines import KneserNey
from extra.tokenizers.end_of_word import EndOfWordTokenizer
from gpt.sample import write_continuation
from gpt.score import token_log_probs
from tests.extra.explorer.test_encoders import softmax
from tests.extra.test_course import induction, patching
from tests.gpt.saved_models import TEXT, saved_gpt
from tests.tiny_runs import made_up_text
from text.decoding.sample_options import SampleOptions
from text.decoding.sampling import Sampling, draw, filter_tokens
from text.tokenizers.base import UNKNOWN
from text.tokenizers.bpe import BPETokenizer
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.char import CharTokenizer
from text.tokenizers.word import WordTokenizer
from tinygrad_lite import Tensor

pytestmark = pytest.mark.e2e

PROMPT = "Es irrt der M"
CHARACTERS = CharTokenizer.train(TEXT + made_up_text(200))
BPE = BPETokenizer.train(made_up_text(500), 300)
PANELS = ("text", "next", "attention", "stream", "wanted", "surprise")
TOLERANCE = 5e-4  # of a probability; the page's weights are float16, and the model of the tests has the same

GPT2 = {"bias": True, "activation": "gelu_tanh"}
DEFAULT = {"norm": "rmsnorm", "norm_weight": False, "positions": "rotary", "qk_norm": True, "attention_scale": 0.375}
DEFAULT |= {"activation": "relu2"}
LLAMA = {"norm": "rmsnorm", "norm_eps": 1e-3, "positions": "rotary", "rope_theta": 500.0, "activation": "swiglu"}
LLAMA |= {"n_inner": 20, "n_head": 4, "n_kv_head": 2, "head_dim": 4, "rope_scaling": "8,1,4,8", "qk_norm": True}
MODELS = {
    "gpt2": GPT2,
    "default": DEFAULT,
    "llama": LLAMA,
    "one head of keys, sinusoidal": {"positions": "sinusoidal", "n_kv_head": 1, "head_dim": 5, "tie_weights": False},
    "no positions, gelu": {"positions": "none", "activation": "gelu"},
    "norm after, relu": {"norm_first": False, "activation": "relu", "bias": True},
    "no residual": {"residual": False, "activation": "linear"},
}


@pytest.fixture
def explained(workplace, opened):
    """Writes the page of a small GPT and opens it; returns the page and the model."""

    def explain(tokenizer=CHARACTERS, arguments=(), width=1100, scheme="light", path=None, **settings):
        path = path or saved_gpt(Path("m.safetensors"), tokenizer, **settings)
        sample.main([str(path), "--explain", "page.html", "--start", PROMPT, *arguments])
        model = load_trained(path).make_model()
        for parameter in model.parameters():
            parameter.data[...] = parameter.data.astype(np.float16)
        return opened(Path("page.html"), width, scheme), model

    return explain


def until(page, expression: str, seconds: float = 5) -> None:
    """Wait until an expression is true; the page's policy forbids Playwright's own way."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(20)


def token(page, position: int):
    """The token at a position of the text; the panel is drawn when it is in sight."""
    page.locator("#text").scroll_into_view_if_needed()
    return page.locator("#text .token").nth(position)


def number(text: str) -> float:
    """The first number in a text."""
    return float(re.search(r"[-−+]?\d+(\.\d+)?(e[+-]\d+)?", text)[0].replace("−", "-"))


# --- the numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_what_the_page_computes_is_what_numpy_computes(explained, name):
    page, model = explained(**MODELS[name])
    found = look_inside(model, CHARACTERS.encode(PROMPT))
    p, attention, stream, added, early = page.evaluate(
        """() => {
          const [L, H] = [session.data.config.n_layer, session.data.config.n_head];
          const all = (count, make) => Array.from({ length: count }, (_, i) => make(i));
          const T = session.read.length;
          const norms = all(T, (t) => session.norms(t));
          return [
            all(T, (t) => Array.from(session.probabilities(t))),
            all(L, (l) => all(H, (h) => session.attention(l, h).map((row) => all(T, (s) => row[s] ?? 0)))),
            norms.map((one) => one.stream), norms.map((one) => one.added),
            all(L + 1, (l) => all(T, (t) => session.early(l, t)[0])),
          ];
        }"""
    )
    expected = softmax(found.logits)
    assert np.abs(np.array(p) - expected[-1]).max() < TOLERANCE
    assert np.abs(np.array(attention) - found.attention).max() < TOLERANCE
    np.testing.assert_allclose(np.array(stream).T, np.linalg.norm(found.stream, axis=-1), rtol=0.01)
    np.testing.assert_allclose(np.moveaxis(added, 0, -1), np.linalg.norm(found.added, axis=-1), rtol=0.02)
    for layer, row in enumerate(early):
        for position, top in enumerate(row):
            assert abs(expected[layer, position, top["token"]] - top["p"]) < TOLERANCE


def test_a_text_that_grows_beyond_the_context_is_read_as_numpy_reads_it(explained):
    page, model = explained(block_size=16)
    ids = page.evaluate(
        """() => {
          session.setText("so lang er strebt, der Mensch");
          for (let i = 0; i < 9; i++) session.append(best(session.probabilities(session.read.length - 1), 1)[0].token);
          return session.ids;
        }"""
    )
    log_probs, state = model.start(np.array([ids[:-9]]))
    for token in ids[-9:]:
        assert np.exp(log_probs[0, token]) > np.exp(log_probs[0]).max() - TOLERANCE
        log_probs, state = model.step(np.array([token]), state)
    last = page.evaluate("Array.from(session.probabilities(session.read.length - 1))")
    assert np.abs(np.array(last) - np.exp(log_probs[0])).max() < TOLERANCE
    assert page.evaluate("session.read") == state.window[0].tolist()


def test_a_head_that_is_switched_off_costs_what_it_costs_in_numpy(explained):
    page, model = explained(**DEFAULT)
    ids = np.array(CHARACTERS.encode(PROMPT))

    def bits():
        return -token_log_probs(model, ids).sum() / np.log(2) / (len(PROMPT) - 1)

    whole = bits()
    costs = {}
    for head in np.ndindex(2, 2):
        with induction.without_heads(model, [head]):
            costs[head] = bits() - whole
    without = whole + costs[1, 1]
    page.locator("#attention").scroll_into_view_if_needed()
    page.get_by_text("Missed most").wait_for()  # every head was switched off once; that one is shown first
    until(page, f"session.head.join() === '{','.join(map(str, max(costs, key=costs.get)))}'")
    page.locator(".heads").get_by_role("button", name="layer 2, head 2").click()
    page.locator("#attention h3", has_text="Layer 2, head 2").first.wait_for()  # drawn when it is in sight
    page.get_by_role("button", name="Switch this head off").click()
    page.get_by_text("now costs").wait_for()
    said = page.locator("#price").inner_text()
    assert f"now costs {without:.2f}"[:-1] in said
    assert page.evaluate("session.perCharacter(session.bits())") == pytest.approx(without, abs=0.01)
    assert page.evaluate("session.perCharacter(session.bitsWith(new Set()))") == pytest.approx(whole, abs=0.01)
    shown = page.locator(".heads").get_by_role("button", name="layer 2, head 2").get_attribute("aria-label")
    assert number(shown.split("without it ")[1]) == pytest.approx(without - whole, abs=0.01)
    page.get_by_role("button", name="Switch this head on").click()
    page.locator("#price").wait_for(state="hidden")


@pytest.mark.parametrize("name", ["gpt2", "default", "llama"])
def test_an_opened_cell_computes_the_weight_that_the_map_shows(explained, drawn, name):
    page, model = explained(**MODELS[name])
    attention = look_inside(model, CHARACTERS.encode(PROMPT)).attention
    t, s = 7, 3
    found = page.evaluate(
        "([t, s]) => { const c = session.cell(1, 1, t, s); return {...c, weights: [...c.weights], "
        "products: Array.from(c.query, (q, i) => q * c.key[i])}; }",
        [t, s],
    )
    assert sum(found["products"]) * found["scale"] == pytest.approx(found["score"])
    scores = page.evaluate("(t) => Array.from({ length: t + 1 }, (_, s) => session.cell(1, 1, t, s).score)", t)
    np.testing.assert_allclose(softmax(np.array(scores)), attention[1, 1, t, : t + 1], atol=TOLERANCE)

    page.mouse.move(0, 0)  # what is under the pointer is chosen, also when the map is drawn there or the page scrolls
    page.locator(".heads").get_by_role("button", name="layer 2, head 2").press("Enter")
    page.locator("#attention h3", has_text="Layer 2, head 2").first.wait_for()  # the map of the head before has gone
    grid = page.get_by_role("button", name="Map:")
    row, column = np.unravel_index(attention[1, 1, 1:].argmax(), attention[1, 1, 1:].shape) + np.array([1, 0])
    grid.focus()
    page.keyboard.press("Enter")  # the strongest cell is chosen first
    said = page.locator("#attention .opened").inner_text()
    weight = float(said.split("the weight, ")[1].split("%")[0])
    assert weight == pytest.approx(100 * attention[1, 1, row, column], abs=0.5)
    names = page.locator("#attention .opened h3 .token").all_inner_texts()
    assert names == [PROMPT[i].replace(" ", "·") for i in (row, column)]
    product, scale, score = (number(said.split(words)[1]) for words in ("products sum to ", "the scale ", "the score "))
    assert product * scale == pytest.approx(score, abs=0.01)
    e_score, total = (number(said.split(words)[1]) for words in ("e^score is ", "they sum to "))
    assert 100 * e_score / total == pytest.approx(weight, rel=0.02)
    assert page.locator("#attention .vector").count() == 5


@pytest.mark.parametrize("name", MODELS)
def test_the_parts_of_a_logit_are_those_of_numpy(explained, drawn, name):
    page, model = explained(**MODELS[name])
    parts = page.evaluate("partsOf(session.model(), session.seen.at(-1), 5)")
    if not (model.config.norm_first and model.config.residual):
        assert parts is None
        page.locator("#wanted").scroll_into_view_if_needed()
        page.get_by_text("a logit cannot be divided among them").wait_for()
        return
    found = look_inside(model, CHARACTERS.encode(PROMPT))
    logits = found.logits[-1, -1].astype(float)
    values = {part["name"]: part["value"] for part in parts}
    others = page.evaluate("partsOf(session.model(), fromOthers(session, session.selected), 5)")
    others = {part["name"]: part["value"] for part in others}
    assert sum(values.values()) == pytest.approx(logits[5] - logits.mean(), abs=0.02)
    assert len(values) >= 1 + 2 * (model.config.n_head + 1)

    def without(part: np.ndarray) -> float:  # the change of the logit when a part is missing, with the norm as it is
        x = found.stream[-1, -1]
        centred = x - x.mean() if model.config.norm == "layernorm" else x
        r = 1 / np.sqrt((centred**2).mean() + model.config.norm_eps)
        part = part - part.mean() if model.config.norm == "layernorm" else part
        weight = model.final_norm.weight.numpy() if getattr(model.final_norm, "weight", None) is not None else 1
        shares = model.lm_head.weight.numpy() @ (part * r * weight)
        return shares[5] - shares.mean()

    for layer in range(model.config.n_layer):
        expected = without(found.added[layer, 1, -1])
        assert values[f"layer {layer + 1}, feed-forward"] == pytest.approx(expected, abs=0.01)
        heads = [values[f"layer {layer + 1}, head {head + 1}"] for head in range(model.config.n_head)]
        bias = values.get(f"layer {layer + 1}, bias of attention", 0)
        assert sum(heads) + bias == pytest.approx(without(found.added[layer, 0, -1]), abs=0.01)
        mixer, x = model.blocks[layer].mixer, model.blocks[layer].mixer_norm(Tensor(found.stream[layer, -1]))
        own = np.split(mixer.value(x).numpy(), model.config.n_kv_head or model.config.n_head)
        for head, columns in enumerate(np.split(mixer.output.weight.numpy(), model.config.n_head, axis=1)):
            value = own[head * len(own) // model.config.n_head] * found.attention[layer, head, -1, -1]
            expected = heads[head] - without(columns @ value)  # what it brings from the other tokens
            assert others[f"layer {layer + 1}, head {head + 1}"] == pytest.approx(expected, abs=0.01)
    page.locator("#wanted").scroll_into_view_if_needed()
    page.locator("#wanted tr.chosen").wait_for()
    best = logits.argmax()
    shown = page.locator("#wanted tr.chosen td").last.inner_text().replace("−", "-")
    assert float(shown) == pytest.approx(logits[best] - logits.mean(), abs=0.02)
    rows = page.locator("#wanted tbody tr")
    before = rows.all_inner_texts()
    *shown, all_together = map(number, rows.locator("td:last-child").all_inner_texts())
    assert sum(shown) == pytest.approx(all_together, abs=0.02)
    page.locator("#wanted .controls .token").nth(1).click()
    drawn(page)
    assert rows.all_inner_texts() != before


def test_patching_moves_the_answer_as_in_the_course(explained):
    page, model = explained(**DEFAULT)
    own, other = CHARACTERS.encode(PROMPT), CHARACTERS.encode(PROMPT.replace("d", "s"))
    a, b = (int(look_inside(model, ids).logits[-1, -1].argmax()) for ids in (own, other))
    b = b if b != a else (a + 1) % 7
    begin = "([ids, a, b]) => { window.result = patched(session, ids); result.answers.splice(0, 2, a, b); }"
    page.evaluate(begin, [other, a, b])
    effects = page.evaluate("() => { for (const _ of result.steps()); return result.effects; }")
    expected, _ = patching.patching(model, other, own, [b, a])
    np.testing.assert_allclose(effects[:2], expected[:2, PROMPT.index("d") :], atol=0.05)
    assert effects[0][0] == pytest.approx(1)  # with this token exchanged, the text is the other one


def test_six_grams_are_counted_as_in_python(explained):
    page, model = explained(arguments=["--compare", "text.txt"])
    text = Path("text.txt").read_text(encoding="utf-8")
    counted = KneserNey(page.evaluate("session.data.compare.text"), 6, len({*text}))
    page.locator("#surprise").scroll_into_view_if_needed()
    page.get_by_text("by counting 6-grams").wait_for()
    for prompt in (PROMPT, "Grün ist der Menschenß, 😀\n"):
        found = page.evaluate(
            """(prompt) => {
              const { text, order, vocabSize } = session.data.compare;
              const model = new KneserNey(text, order, vocabSize);
              for (const _ of model.count());
              return model.probabilities(prompt);
            }""",
            prompt,
        )
        np.testing.assert_allclose(found[1:], counted.probabilities(prompt), rtol=1e-9)
    own = -token_log_probs(model, np.array(CHARACTERS.encode(PROMPT))).mean() / np.log(2)
    found = page.evaluate("characterBits(session).bits.slice(1)")
    assert np.mean(found) == pytest.approx(own, abs=0.02)


def test_bits_of_tokens_are_shared_by_their_characters(explained):
    page, _ = explained(tokenizer=BPE)
    bits, tokens, characters = page.evaluate(
        """() => {
          session.setText("Grün süß 😀 ruht");
          const { bits, characters } = characterBits(session);
          return [bits, session.bits(), characters];
        }"""
    )
    assert "".join(characters)[-9:] == "süß 😀 ruht"[-9:]
    known = [value for value in bits if value is not None]
    assert len(known) >= len(bits) - 5
    assert sum(known) == pytest.approx(sum(value for value in tokens if value is not None), rel=1e-6)


def test_filters_and_draws_are_those_of_python(explained):
    page, _ = explained()
    rng = np.random.default_rng(0)
    for case in range(40):
        logits = rng.normal(size=30) * 3
        logits[3:6] = logits[3]  # ties
        setting = {"temperature": [0.3, 1.0, 2.0][case % 3], "topK": [0, 4, 50][case // 3 % 3]}
        setting |= {"topP": [1.0, 0.5, 0.93][case // 2 % 3], "minP": [0.0, 0.2][case % 2]}
        u = rng.random()
        kept, token = page.evaluate(
            """([logits, setting, u]) => {
              const kept = filterTokens(logSoftmax(logits), setting, [7]);
              return [Array.from(kept), draw(kept, u).token];
            }""",
            [logits.tolist(), setting, u],
        )
        log_probs = np.log(softmax(logits))[None]
        log_probs[0, 7] = -np.inf
        values = filter_tokens(log_probs, Sampling(*setting.values()))
        np.testing.assert_allclose(kept, softmax(values)[0], atol=1e-12)
        assert token == draw(values, np.array([u]))[0]


MARKS = ("<answer>", END)
MESSAGES = ["Es <end> irrt", "so lang <answer>", "der Mensch, " * 3, "strebt?", "er strebt"]
MESSAGES += ["der Mensch er strebt " * 4]


@pytest.mark.parametrize(("plain", "step"), [(CHARACTERS, 56), (BPE, 46)], ids=["char", "bpe"])
def test_a_conversation_has_the_tokens_that_sample_gives_it(explained, plain, step):
    tokenizer = plain.with_specials(MARKS)
    page, model = explained(tokenizer, dataset="chat", block_size=32, step=step)  # weights that end some answers
    page.evaluate("session.data.talk.most = 9")
    whole = []

    def reply(options, messages, turn):
        whole[:] = fitting(messages, 16)
        return write_continuation(options, model, tokenizer, whole, turn, {end})

    fitting = Fitting(partial(question_ids, tokenizer))
    talk = Chat(SampleOptions(greedy=True, max_new_tokens=9), [], reply)
    end, ended = tokenizer.specials[END], set()
    for message in [PROMPT, *MESSAGES]:
        if message != PROMPT:  # that one waits for its answer
            page.get_by_role("textbox", name="Your message").fill(message)
        page.get_by_role("button", name="Answer", exact=True).click()
        page.locator(".log[aria-busy=false]").wait_for()
        talk.take(message)
        found = page.evaluate("session.ids")
        ended.add(found[-1] == end)
        assert found == [*whole, *found[len(whole) :]]
        assert found[len(whole) :] in ([], [end])
        read = tokenizer.decode(tokenizer.encode(message.strip()))
        assert read in page.locator(".log p").all_inner_texts()
    assert ended == {True, False}  # the others are as long as they may be
    said = page.locator(".log > .forgotten p").all_inner_texts()  # what the model does not read any more can be read
    assert said
    assert len(said) % 2 == 0
    assert "what the model has forgotten" in page.locator(".log").inner_text()


HOSTILE = [
    "</script><script>alert(1)</script>",
    "\u202eright to left\u2066 \u200b\u00ad\ufeff zero",
    "a\u0308u\u0308 Sa\u0308tze\u0301\u0301 e\u0301 1a\u0308",
    "   viele   Leerzeichen \t\t\n\n  \r\n x  ",
    "__init__ 12a34 ²³½ Ⅷ ٣٤ 東京 한국어 ñandú’s „Zitat“ –—…",
    "😀👩‍👩‍👧 𝔘𝔫𝔦 \U0001f1e9\U0001f1ea",
    "\x00\x1c\x1f\x85\xa0\u2028\u2029\u3000x",
    "ab" * 100 + "1" * 130 + " " * 70 + "!" * 65 + "😀" * 66,
    "\ud800 lone \udfff",
    "",
]


TOKENIZERS = {
    "char": lambda text: CharTokenizer.train(text + "😀\u202e", (UNKNOWN, "<eos>")),
    "byte": lambda text: ByteTokenizer(("<eos>",)),
    "bpe": lambda text: BPETokenizer.train(text + "".join(HOSTILE[:3]), 290, ("<pad>",)),
    "bpe-w": lambda text: EndOfWordTokenizer.train(text, 80),
    "word": lambda text: WordTokenizer.train(text, 30, ("<eos>", UNKNOWN)),
}


@pytest.mark.parametrize("make", TOKENIZERS.values(), ids=TOKENIZERS)
def test_hostile_strings_are_cut_as_in_python(explained, make):
    text = made_up_text(300) + " 1234 ä ö ü ß"
    tokenizer = make(text)
    page, _ = explained(tokenizer=tokenizer)
    for string in [*HOSTILE, text, "x" * 10_000]:
        found = page.evaluate("(text) => session.tokenizer.encode(text)", string)
        assert found == tokenizer.encode(string), ascii(string[:40])
        unknown = page.evaluate("(text) => [...session.tokenizer.unknown(text)]", string)
        assert {*unknown} == {*tokenizer.unknown(string)}
    pieces = page.evaluate("session.pieces")
    assert [bytes(piece) for piece in pieces] == [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]


def test_every_character_is_of_the_class_that_python_has(explained):
    """Letters, numbers and white space decide where words end. Newer browsers know more characters than Python."""
    page, _ = explained()
    assigned = [c for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    found = page.evaluate(
        """(codes) => {
          const classes = [LETTER, "\\\\p{Nd}", SPACE].map((pattern) => new RegExp(`^${pattern}$`, "u"));
          return codes.map((code) => classes.findIndex((one) => one.test(String.fromCodePoint(code))));
        }""",
        assigned,
    )
    for c, number in zip(map(chr, assigned), found, strict=True):
        assert number == (1 if c.isdecimal() else 0 if c.isalnum() else 2 if c.isspace() else -1), ascii(c)


# --- using it ---------------------------------------------------------------------------------------------------


IN_SIGHT = """() => {
  const [last, field] = [".mirror .now", ".field"].map((one) => document.querySelector(one).getBoundingClientRect());
  return last.top >= field.top - 1 && last.bottom <= field.bottom + 1 && field.top >= 0 && field.bottom <= innerHeight;
}"""


def test_each_natural_action_leads_where_one_expects(explained, drawn):
    page, _ = explained()
    box, text = page.get_by_role("textbox", name="Text for the model"), "session.text(session.ids)"
    box.click()
    page.keyboard.press("End")
    page.keyboard.type("e")
    assert page.evaluate(text) == PROMPT + "e"
    page.keyboard.press("Enter")  # writes, and what is written stays in sight
    until(page, "session.ids.length > 40", 30)
    page.keyboard.press("Enter")  # and pauses
    drawn(page)
    written = page.evaluate(text)
    assert written.startswith(PROMPT + "e")
    assert box.input_value() == written
    assert page.evaluate(IN_SIGHT)
    page.keyboard.press("Shift+Enter")
    assert page.evaluate(text) == written + "\n"
    drawn(page)
    second = page.locator(".candidate").nth(1)
    label = second.locator("b").inner_text()
    second.click()
    assert page.evaluate("session.label(session.ids.at(-1))") == label
    assert page.evaluate("session.ids.length") == len(written) + 2


def test_the_picture_shows_the_numbers_of_the_selected_token(explained, drawn):
    page, model = explained(**DEFAULT)
    found = look_inside(model, CHARACTERS.encode(PROMPT))
    page.evaluate("session.select(4)")
    drawn(page, "whole")
    probabilities = softmax(found.logits)
    nodes = page.locator("#whole .node-stream")
    assert nodes.count() == 3
    for layer, words in enumerate(nodes.all_inner_texts()):
        p = probabilities[layer, 4]
        assert words.rsplit(" ", 1)[0] == page.evaluate("(token) => session.label(token)", int(p.argmax()))
        assert number(words.rsplit(" ", 1)[1]) == pytest.approx(100 * p.max(), abs=0.5)
    widths = page.evaluate("Array.from(document.querySelectorAll('#whole .band'), (band) => band.getBBox().width)")
    lengths = np.linalg.norm(found.stream, axis=-1)
    assert widths[2] / widths[4] == pytest.approx(lengths[:, 2].max() / lengths[:, 4].max(), rel=0.02)
    page.get_by_role("button", name="feed-forward part of layer 2").click()
    drawn(page)
    assert f"Length {np.linalg.norm(found.added[1, 1, 4]):.1f}" in page.locator("#whole .part").inner_text()
    page.get_by_role("button", name="stream after layer 1").press("Enter")
    drawn(page)
    assert f"length {lengths[1, 4]:.1f}" in page.locator("#whole .part").inner_text()
    page.get_by_role("button", name="head 1 of layer 2").click()
    drawn(page)
    row = found.attention[1, 0, 4]
    assert number(page.locator("#whole .part p").first.inner_text().split()[4]) == pytest.approx(
        100 * row.max(), abs=0.5
    )
    page.get_by_role("button", name="Switch off").click()
    assert page.evaluate("[...session.off]") == ["1.0"]
    page.locator("#whole").get_by_role("button", name=f"{PROMPT[2]}, position 3").click()
    assert page.evaluate("session.selected") == 2


def test_the_address_leads_back_to_what_was_seen(explained, drawn):
    page, _ = explained(**DEFAULT)
    page.get_by_role("textbox", name="Text for the model").fill("der Mensch,\nso")
    page.get_by_role("slider", name="temperature").press("Home")
    page.locator(".heads").get_by_role("button", name="layer 1, head 2").click()
    page.get_by_role("button", name="Switch this head off").click()
    token(page, 6).click()
    page.wait_for_url(re.compile("at=7"))
    state = "[session.ids, session.head, [...session.off], session.selected, session.data.sampling]"
    seen = page.evaluate(state)
    assert seen[-1]["temperature"] == 0
    address = page.evaluate("location.hash")
    page.goto("about:blank")
    page.goto(Path("page.html").resolve().as_uri() + address + "&panel=stream")
    page.locator("#status").wait_for(state="hidden")
    assert page.evaluate(state) == seen
    assert page.get_by_role("textbox", name="Text for the model").input_value() == "der Mensch,\nso"
    drawn(page)
    assert page.locator("#stream").bounding_box()["y"] < 500
    sliders = "#temperature=x&topK=-4&topP=1e999&minP=NaN&step=-1&note=%3Cb%3E" + "x" * 300
    for hostile in ("#at=x&head=99.1&off=,a.b&text=", "#panel=%3Cb%3E&at=-5", "#attention", "#=&=", sliders):
        page.evaluate("(hash) => { location.hash = hash; }", hostile)
        drawn(page)
    assert page.evaluate("session.selected") >= 0


def test_the_page_can_be_used_by_keyboard_alone(explained, drawn, tab):
    page, _ = explained()
    reached = set()
    for _ in range(80):
        name = tab(page)
        reached.add(name)
        if name.startswith("Switch this head off"):
            break
    assert {"Skip to the first panel", "Text for the model", "Next", "Take the tour", "Switch this head off"} <= reached
    drawn(page, "attention")
    page.locator("#attention .strip .token").nth(4).focus()
    assert "(position 5, before" in page.locator("#looks").inner_text()
    page.keyboard.press("ArrowRight")
    assert "(position 6, before" in page.locator("#looks").inner_text()
    page.keyboard.press("Enter")
    drawn(page)
    assert page.evaluate("session.selected") == 5
    assert page.evaluate("document.activeElement.dataset.position") == "5"


def test_a_slider_shows_all_ages_of_a_run(explained):
    for step in (10, 20, 30):
        saved_gpt(Path(f"run/step-{step:08d}.safetensors"), CHARACTERS, step)
    page, _ = explained(path=saved_gpt(Path("run/last.safetensors"), CHARACTERS, 30))
    age = page.get_by_role("slider", name="Training")
    assert age.get_attribute("aria-valuetext") == "step 30"
    age.focus()
    page.keyboard.press("Home")
    page.locator("#growing").scroll_into_view_if_needed()
    page.locator("#growing circle").nth(2).wait_for()
    first = load_trained(Path("run/step-00000010.safetensors")).make_model()
    log_probs, _ = first.start(np.array([CHARACTERS.encode(PROMPT)]))
    p = page.evaluate("Array.from(session.probabilities(session.selected))")
    assert np.abs(np.array(p) - np.exp(log_probs[0])).max() < TOLERANCE
    bits = -token_log_probs(first, np.array(CHARACTERS.encode(PROMPT))).mean() / np.log(2)
    shown = page.locator("#growing tbody tr.chosen td").nth(1).inner_text()
    assert float(shown) == pytest.approx(bits, abs=0.02)


def test_a_recording_is_shown_as_the_model_computed_it(explained, drawn, monkeypatch):
    monkeypatch.setattr("extra.explorer.gpt.MAX_LIVE", 10)
    page, model = explained()
    assert page.get_by_role("textbox").count() == 0
    token(page, 3).click()
    expected = softmax(look_inside(model, CHARACTERS.encode(PROMPT)).logits)[-1, 3]
    p = page.evaluate("Array.from(session.probabilities(session.selected))")
    assert np.abs(np.array(p) - expected).max() < TOLERANCE
    for panel in ("attention", "stream", "surprise"):
        drawn(page, panel)
    assert "(position 4, before" in page.locator("#looks").inner_text()
    assert "bits per character" in page.locator("#bits").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_it_fits_a_phone_in_light_and_dark_and_axe_finds_nothing(explained, drawn, accessible, width, scheme, tmp_path):
    hostile = "</script> \u202e\u2066 " + "Wort" * 2500
    specials = (UNKNOWN, "</script><b>bold</b>", "<img src=x onerror=alert(1)>", "\u05d0\u05d1")
    tokenizer = CharTokenizer(sorted({*TEXT, *hostile}), specials)
    page, _ = explained(tokenizer=tokenizer, width=width, scheme=scheme, block_size=64)
    page.get_by_role("button", name="Switch this head off").click()
    page.get_by_role("button", name="Next", exact=True).click()
    for panel in ("whole", *PANELS, "patching"):
        drawn(page, panel)
    page.get_by_role("button", name="Patch").click()
    page.get_by_role("button", name="Map:").press("Enter")
    assert accessible(page) == []
    before = [page.locator(tag).count() for tag in ("script", "img")]
    page.get_by_role("textbox", name="Text for the model").fill(hostile)
    for panel in PANELS:
        drawn(page, panel)
        page.locator(f"#{panel}").screenshot(path=tmp_path / f"{panel}-{width}-{scheme}.png")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert [page.locator(tag).count() for tag in ("script", "img")] == before
    assert page.locator("b").get_by_text("bold", exact=True).count() == 0
    assert page.evaluate("session.data.textless.map((token) => session.label(token))") == list(specials)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(20, 23, 26)") == (scheme == "dark")
