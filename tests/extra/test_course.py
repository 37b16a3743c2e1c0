"""The chapters from 13 on, which may need the shelf, are as those before them."""

import pytest

from tests import test_course as core

every_later_chapter = pytest.mark.parametrize("page", core.LATER, ids=lambda page: page.parent.name)


@every_later_chapter
def test_exercises_fail_on_their_blanks_and_pass_when_solved(page):
    core.test_exercises_fail_on_their_blanks_and_pass_when_solved(page)


@every_later_chapter
def test_a_chapter_names_its_exercises_and_is_neither_too_short_nor_too_long(page):
    core.test_a_chapter_names_its_exercises_and_is_neither_too_short_nor_too_long(page)


@every_later_chapter
def test_code_that_a_chapter_quotes_is_in_a_file(page):
    core.test_code_that_a_chapter_quotes_is_in_a_file(page)
