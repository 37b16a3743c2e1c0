"""One dataclass field is a whole setting: option, check, help, JSON and shape follow from it."""

from dataclasses import dataclass

import pytest

from tests.gpt.configs import GPTConfig, GPTOptions, Seq2SeqConfig, Seq2SeqOptions
from tinygrad_lite.config import option
from tinygrad_lite.errors import CheckpointError, OptionError
from training.cli.command_line import help_page, parse_command_line
from training.cli.options import build, fields_of
from training.model_config import read_model_config, settings_of
from training.options import TrainOptions

# As version 0.1.0 wrote them, key by key.
GPT_OF_0_1_0 = {"vocab_size": 11, "block_size": 7, "n_layer": 2, "n_head": 2, "n_embd": 6, "dropout": 0.1}
GPT_OF_0_1_0 |= {"bias": False, "positions": "learned", "activation": "gelu", "norm_eps": 1e-05, "n_inner": 0}
SEQ2SEQ_OF_0_1_0 = {"vocab_size": 23, "pad": 0, "bos": 1, "eos": 2, "n_layer": 3, "n_head": 4, "n_embd": 64}
SEQ2SEQ_OF_0_1_0 |= {"n_inner": 0, "block_size": 32, "bias": True, "norm_first": True, "activation": "relu"}
SEQ2SEQ_OF_0_1_0 |= {"positions": "sinusoidal", "dropout": 0.1, "label_smoothing": 0.0}
BOTH = pytest.mark.parametrize(
    ("config", "options", "old"),
    [(GPTConfig, GPTOptions, GPT_OF_0_1_0), (Seq2SeqConfig, Seq2SeqOptions, SEQ2SEQ_OF_0_1_0)],
)


@dataclass(frozen=True)
class Switched(GPTConfig):
    """A GPT with one more setting, which is one more field and nothing else."""

    gates: int = option(1, "gates of each feed-forward part", unit="gates", low=1, high=4, group="model")


@dataclass
class SwitchedOptions(TrainOptions):
    """The options of train.py for it."""

    config: Switched = settings_of(Switched)


def test_a_field_is_an_option_with_its_check_and_its_help():
    given = parse_command_line(SwitchedOptions, ["--gates", "3"], prog="train.py", description="")[0]
    options = build(SwitchedOptions, ("command line", given))
    assert options.model_config(11) == Switched(11, gates=3)
    assert build(SwitchedOptions).model_config(11).gates == 1
    with pytest.raises(OptionError, match=r"--gates 5 \(preset\): must be at least 1 and at most 4 \(gates\)"):
        build(SwitchedOptions, ("preset", {"gates": 5}))
    page = help_page(SwitchedOptions, "train.py")
    assert "--gates INT" in page
    assert "gates of each feed-forward part" in page


def test_a_field_is_a_key_of_the_json_and_old_checkpoints_have_its_default():
    assert read_model_config(Switched, Switched(11, gates=3).to_json()) == Switched(11, gates=3)
    assert read_model_config(Switched, GPT_OF_0_1_0).gates == 1
    with pytest.raises(CheckpointError, match="gates cannot be 9: must be at least 1 and at most 4"):
        read_model_config(Switched, GPT_OF_0_1_0 | {"gates": 9})


def test_a_field_is_part_of_the_shape_unless_only_training_uses_it():
    assert Switched.shape() == GPTConfig.shape() | {"gates"}
    assert not {"dropout", "label_smoothing", "vocab_size", "pad"} & (GPTConfig.shape() | Seq2SeqConfig.shape())


@BOTH
def test_checkpoints_of_the_first_version_can_be_read_and_written(config, options, old):
    written = read_model_config(config, old).to_json()
    later = {name: field.default for name, field in config.chosen().items() if name not in old}
    assert written == {name: value for name, value in (old | later).items() if name in fields_of(config)[0]}


@BOTH
def test_every_setting_that_has_a_default_is_an_option(config, options, old):
    own = fields_of(options)[0]
    for name, field in config.chosen().items():
        assert (own[name].metadata, own[name].default) == (field.metadata, field.default)
        assert field.metadata["group"] in ("model", "training")
    assert options().model_config(23) == config(23, *range(len(config.special_fields())))


def test_special_tokens_come_from_the_tokenizer():
    config = Seq2SeqOptions().model_config(23, {"<pad>": 7, "<bos>": 5, "<eos>": 6, "<unk>": 1})
    assert (config.pad, config.bos, config.eos) == (7, 5, 6)
    assert (config.specials, GPTConfig(11).specials) == ({"<pad>": 7, "<bos>": 5, "<eos>": 6}, {})
    for wrong in ({"pad": 1}, {"eos": 23}):
        with pytest.raises(CheckpointError, match="are not 3 different tokens among 23"):
            read_model_config(Seq2SeqConfig, SEQ2SEQ_OF_0_1_0 | wrong)
