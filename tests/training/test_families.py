"""The table of families agrees with what it names."""

import pytest

from families import FAMILIES
from training.cli.options import fields_of


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_what_the_table_says(name):
    family = FAMILIES[name]
    assert family.name == name
    assert family.options().model_config(300)
    names = fields_of(family.options)[0].keys()  # those that are recommended when memory runs out
    assert names >= {family.options.FACTORS[0][0], "gradient_accumulation_steps", "n_embd", "dtype"}
