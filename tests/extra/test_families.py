"""The families of the shelf agree with the layouts and the models to fetch that they name."""

import pytest

from extra.families import FAMILIES


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_family_reads_what_its_layouts_and_models_say(family):
    layouts = {*family.layouts.values()}
    assert sorted(family.layouts) == sorted(kind for layout in layouts for kind in layout.titles)
    for model, fetching in family.fetched.items():
        assert model == fetching.NAME
        assert fetching.FOLDER
        assert callable(fetching.fetched_folder)
