"""What is typed and changes nothing is refused: the options that the shelf adds, and the parts that read others."""

import pytest

from extra.families import FAMILIES
from tests.training.cli import test_unread as core
from tinygrad_lite.errors import OptionError
from tinygrad_lite.optim import SCHEDULES
from tinygrad_lite.transformer import MIXERS, POSITIONS
from training.cli.options import fields_of
from training.cli.unread import refuse_unread
from training.options import OPTIMIZERS

place = core.place  # a fixture
GPT, SEQ2SEQ = FAMILIES["gpt"], FAMILIES["seq2seq"]
# As for the core: what every run reads, or what a check of its own refuses.
OF_ALL = """
    dry_run watts flops_per_second profile exchange freeze lora_rank lora_alpha lora_targets lora_dropout quantize
    keep stop_on_disk_error log_interval curve explain
"""
OF_THIS_SEQ2SEQ = " mixer attend input_feeding"
OF_THIS_GPT = " pairs separator replay teachers rewards residual mixer"
TESTED_ELSEWHERE = {*"replay_share teachers_share method group reference beta separator replay teachers".split()}
PAIRS = {"pairs": "pairs.tsv", "text": [], "separator": "<to>"}
SUMS = {"dataset": "sums", "text": [], "separator": "<to>", "train_pairs": 60, "held_out": 20}
RATES = {"warmup_iters": 2, "lr_decay_iters": 2, "min_lr": 0.05, "plateau": 0.9}
OF_OPTIMIZERS = {"beta1": 0.5, "beta2": 0.5, "muon_lr_factor": 5.0, "muon_momentum": 0.5}
OF_MIXERS = {"n_head": 4, "n_kv_head": 1, "head_dim": 4, "attention_scale": 0.1, "qk_norm": True}
OF_MIXERS |= {"n_state": 8, "window": 4}
OF_PAIRS = {"swap": True, "held_out": 2, "train_pairs": 9, "eval_pairs": 0, "data_order": "epochs", "eval_iters": 2}
OF_GPTS = [
    *(({"schedule": name}, RATES) for name in SCHEDULES),
    ({"decay_lr": False}, RATES),
    *(({"optimizer": name}, OF_OPTIMIZERS) for name in OPTIMIZERS),
    *(({"positions": name}, {"rope_theta": 9.0, "rope_scaling": "32,1,4,8192"}) for name in POSITIONS),
    *(({"mixer": name}, OF_MIXERS) for name in MIXERS),
    *((way, OF_PAIRS) for way in ({}, PAIRS, {"documents": "line"})),
    ({}, {"documents": "line"}),
    *((way, {"dataset": "calculations"}) for way in ({}, PAIRS, SUMS)),
]
OF_TRANSLATORS = [
    ({"mixer": "attention"}, {"n_head": 4, "attention_scale": 0.1, "qk_norm": True, "attention_reach": 2}),
    *(({"mixer": name}, {"n_head": 4}) for name in ("attention", "rnn", "lstm")),
    *(
        ({"mixer": "lstm", "attention_reach": 4, "attend": name}, {"score": "dot", "attention_reach": 1})
        for name in ("none", "global", "monotonic", "predictive")
    ),
]


def test_every_option_has_an_entry():
    for family, own in ((GPT, core.OF_GPT + OF_THIS_GPT), (SEQ2SEQ, core.OF_SEQ2SEQ + OF_THIS_SEQ2SEQ)):
        assert fields_of(family.options)[0].keys() <= {*(core.ALWAYS + OF_ALL + own).split()} | core.in_tables(family)


def test_an_option_is_refused_if_and_only_if_it_changes_nothing():
    proven = core.refuses_what_changes_nothing(GPT, core.TINY_GPT, OF_GPTS)
    assert proven | TESTED_ELSEWHERE >= core.in_tables(GPT) - core.in_tables(core.GPT)
    core.refuses_what_changes_nothing(SEQ2SEQ, core.TINY_SEQ2SEQ, OF_TRANSLATORS)


SHARES = [
    ({"replay": "python-docs"}, {"replay_share": 0.2}),
    ({"teachers": ["a"]}, {"teachers_share": 0.2}),
    ({"rewards": ["right"]}, {"group": 2}),
]


@pytest.mark.parametrize(("whole", "share"), SHARES, ids=str)
def test_a_share_of_nothing_changes_nothing(whole, share):
    options = GPT.options.of(**whole, **share)
    refuse_unread(options, whole | share, options.readers())
    with pytest.raises(OptionError, match=f"--{next(iter(share))} changes nothing without --{next(iter(whole))}"):
        refuse_unread(GPT.options.of(**share), share, options.readers())
