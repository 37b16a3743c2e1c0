"""What is typed and changes nothing is refused: the tables know every option, and they tell the truth."""

import functools
import json
import string
from itertools import product
from pathlib import Path

import pytest

from gpt.family import FAMILY as GPT
from seq2seq.family import FAMILY as SEQ2SEQ
from seq2seq.toys import TOYS, toy_pairs
from tests.tiny_runs import made_up_text, undone
from text.tokenizers import LEARNED
from tinygrad_lite.errors import OptionError
from tinygrad_lite.optim import SCHEDULES
from tinygrad_lite.random import random_key
from train import evaluate, only_updates
from training.cli.options import build, fields_of
from training.cli.unread import refuse_unread
from training.family import Family
from training.options import OPTIMIZERS
from training.processes.processes import OneProcess

# Options that every run reads, or that a check of their own refuses. A new option belongs here or in a table of
# readers (training/cli/unread.py says where they are).
ALWAYS = """
    out_dir resume init_from overwrite seed device dtype workers composed
    max_iters gradient_accumulation_steps optimizer learning_rate decay_lr beta1 weight_decay grad_clip
    eval_interval patience tokenizer
    n_layer n_embd n_inner block_size dropout bias positions activation norm_eps norm norm_weight norm_first recompute
    zero_init
"""
OF_GPT = "text batch_size sample_tokens data_order eval_iters tie_weights n_head qk_norm attention_scale"
OF_SEQ2SEQ = """
    pairs src tgt val_src val_tgt swap train_pairs batch_tokens eval_pairs translations label_smoothing length_penalty
    n_head qk_norm attention_scale
"""
# Tiny runs in various ways, and other values of options: they change the weights or the evaluation if and only if they
# are not refused.
TINY = {"n_layer": 1, "n_embd": 16, "n_head": 2, "max_iters": 3, "warmup_iters": 1, "learning_rate": 0.1}
TINY_GPT = TINY | {"text": ["text.txt"], "block_size": 24, "batch_size": 2, "eval_iters": 1, "sample_tokens": 0}
TINY_SEQ2SEQ = TINY | {"dataset": "reverse", "tokenizer": "char", "batch_tokens": 200, "toy_size": 60}
RATES = {"warmup_iters": 2, "min_lr": 0.05}
OF_OPTIMIZERS = {"beta1": 0.5, "beta2": 0.5}
OF_GPTS = [
    *(({"schedule": name, "decay_lr": on}, RATES) for name, on in product(SCHEDULES, (True, False))),
    *(({"decay_lr": on}, {"schedule": "constant"}) for on in (True, False)),
    *(({"optimizer": name}, OF_OPTIMIZERS) for name in OPTIMIZERS),
    *(({"tokenizer": name, "vocab_size": 290}, {"vocab_size": 270}) for name in LEARNED),
    ({}, {"dataset": "shakespeare"}),
]
FILES = {"pairs": "pairs.tsv"}, {"src": "a", "tgt": "b"}
OF_TRANSLATORS = [
    ({"vocab_size": 290}, {"vocab_size": 270}),
    *(({"dataset": name}, {"toy_size": 80}) for name in TOYS),
    *((way, {"dataset": "sort", "toy_size": 80}) for way in ({}, *FILES)),
    *((way, {"held_out": 2}) for way in ({}, {"val_src": "a", "val_tgt": "b"})),
]


def in_tables(family: Family) -> set[str]:
    """The options of a family that only some of its runs read."""
    fields, readers = fields_of(family.options)[0], family.options().readers()
    names = {name for other in readers if other in fields for names in readers[other].values() for name in names}
    return (names & fields.keys()) - {"learning_rate"}  # which every schedule reads


@pytest.mark.parametrize(("family", "own"), [(GPT, OF_GPT), (SEQ2SEQ, OF_SEQ2SEQ)])
def test_every_option_has_an_entry(family, own):
    assert fields_of(family.options)[0].keys() <= {*f"{ALWAYS} {own}".split()} | in_tables(family)


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory):
    pairs = toy_pairs("reverse", 60)
    words = " ".join(map("".join, product(string.ascii_lowercase, repeat=2)))
    texts = {"text.txt": made_up_text() + words, "pairs.tsv": "".join(f"{a}\t{b}\n" for a, b in pairs)}
    texts |= {name: "".join(f"{pair[side]}\n" for pair in pairs) for side, name in enumerate("ab")}
    with pytest.MonkeyPatch.context() as patch, undone():
        patch.chdir(tmp_path_factory.mktemp("place"))
        for name, text in texts.items():
            Path(name).write_text(text, encoding="utf-8")
        yield
        outcome.cache_clear()


@functools.cache
def outcome(family: Family, settings: str) -> tuple:
    """The weights after three updates, and what an evaluation says; empty if there cannot be such a run."""
    options = build(family.options, ("test", json.loads(settings)))
    task = family.make_task(options)
    try:
        config = options.model_config(task.tokenizer.vocab_size, task.tokenizer.specials)
    except OptionError:
        return ()
    with random_key(1):
        model = family.model_of(config)(config)
    only_updates(options, task, model, options.make_optimizer(model), OneProcess())
    loss = evaluate(task, model, OneProcess())
    with model.evaluating():
        report = task.report(model, loss)
    return *(array.tobytes() for array in model.state_dict().values()), loss, report.words


def refuses_what_changes_nothing(family: Family, usual: dict, cases: list[tuple[dict, dict]]) -> set[str]:
    """Check it in each of these ways, for other values of options; returns the options."""
    for way, changes in cases:
        for name, value in changes.items():
            settings = usual | way | {name: value}
            options = build(family.options, ("test", settings))
            try:
                refuse_unread(options, {name: value}, options.readers())
                is_read = True
            except OptionError:
                is_read = False
            before, after = (outcome(family, json.dumps(every)) for every in (usual | way, settings))
            assert is_read == (before != after != ()), (way, name)
    return {name for _, changes in cases for name in changes}


def test_an_option_is_refused_if_and_only_if_it_changes_nothing():
    assert refuses_what_changes_nothing(GPT, TINY_GPT, OF_GPTS) >= in_tables(GPT)
    of_all = {*RATES, *OF_OPTIMIZERS, "schedule"}
    proven = refuses_what_changes_nothing(SEQ2SEQ, TINY_SEQ2SEQ, OF_TRANSLATORS)
    assert proven | of_all >= in_tables(SEQ2SEQ)
