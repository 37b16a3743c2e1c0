"""The table of families agrees with what it names."""

from dataclasses import fields

import pytest

from families import FAMILIES


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_what_the_table_says(name):
    family = FAMILIES[name]
    assert family.name == name
    assert family.options().model_config(300)
    names = {field.name for field in fields(family.options)}  # those that are recommended when memory runs out
    assert names >= {family.options.FACTORS[0][0], "gradient_accumulation_steps", "n_embd", "dtype"}
    assert callable(family.task)
    assert callable(family.speak)
    layouts = {*family.layouts.values()}
    assert sorted(family.layouts) == sorted(kind for layout in layouts for kind in layout.titles)
    for model, fetching in family.fetched.items():
        assert model == fetching.NAME
        assert fetching.FOLDER
        assert callable(fetching.fetched_folder)
