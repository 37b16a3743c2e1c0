"""The table of families agrees with what it names."""

from dataclasses import fields
from importlib import import_module

import pytest

from workshop.run.families import FAMILIES, load_family


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_what_the_table_says(name):
    family, entry = load_family(name), FAMILIES[name]
    assert family.name == name
    assert family.options().model_config(300)
    names = {field.name for field in fields(family.options)}  # those that are recommended when memory runs out
    assert names >= {family.options.FACTORS[0][0], "gradient_accumulation_steps", "n_embd", "dtype"}
    assert callable(family.task)
    assert callable(family.speak)
    layouts = {import_module(module) for module in entry.layouts.values()}
    assert sorted(entry.layouts) == sorted(kind for layout in layouts for kind in layout.TITLES)
    for model, module in entry.fetched.items():
        fetching = import_module(module)
        assert model == fetching.NAME
        assert fetching.FOLDER
        assert callable(fetching.fetched_folder)
