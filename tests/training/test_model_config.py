"""One dataclass field is a whole setting: its option and the shape of the model follow from it."""

import pytest

from tests.gpt.configs import GPTConfig, GPTOptions, Seq2SeqConfig, Seq2SeqOptions
from tinygrad_lite.errors import CheckpointError
from training.cli.options import fields_of
from training.model_config import read_model_config


def test_a_field_is_part_of_the_shape_unless_only_training_uses_it():
    assert {"n_layer", "bias", "positions"} <= GPTConfig.shape()
    assert not {"dropout", "label_smoothing", "vocab_size", "pad"} & (GPTConfig.shape() | Seq2SeqConfig.shape())


@pytest.mark.parametrize(("config", "options"), [(GPTConfig, GPTOptions), (Seq2SeqConfig, Seq2SeqOptions)])
def test_every_setting_that_has_a_default_is_an_option(config, options):
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
            read_model_config(Seq2SeqConfig, Seq2SeqConfig(23, pad=0, bos=1, eos=2).to_json() | wrong)
