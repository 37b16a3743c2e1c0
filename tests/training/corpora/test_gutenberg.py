"""Files of Project Gutenberg, made up here in the form that real ones have."""

import pytest

from training.corpora.gutenberg import gutenberg_books

BOOK = "Das Stück\n\nvon Niemand\n\nERSTER AKT\n\n  Grün ist der Baum, die Straße weiß,\n  und spät ist's.\n\nENDE"
HEADER = """The Project Gutenberg EBook of Das Stück, by Niemand

This eBook is for the use of anyone anywhere at no cost and with
almost no restrictions whatsoever.

Character set encoding: {encoding}
"""
LICENCE = """***** This file should be named 1-8.txt or 1-8.zip *****

Produced by A Person

*** START: FULL LICENSE ***

THE FULL PROJECT GUTENBERG LICENSE
"""
MARK = "*** {} OF THIS PROJECT GUTENBERG EBOOK DAS STÜCK ***"
PAGE = f"{HEADER}\n{MARK.format('START')}\n\n\n\n\n{{book}}\n\n\n\n\n{MARK.format('END')}\n\n{LICENCE}"


def put_into_page(book=BOOK, encoding="UTF-8"):
    return PAGE.replace("{book}", book).replace("{encoding}", encoding)


def found_in(page):
    """The only book in a whole file."""
    (book,), whole = gutenberg_books(page)
    assert whole
    return book


START, END = "*** START OF THE PROJECT GUTENBERG EBOOK X ***", "*** END OF THE PROJECT GUTENBERG EBOOK DAS STÜCK ***"
FIRST_LINES = [
    *(START, START.replace("* S", "*S").replace("X *", "X*"), START.replace("THE", "THE COPYRIGHTED")),
    *("  *** START OF THIS PROJECT GUTENBERG EBOOK A*B ***", "*** START OF THE PROJECT GUTENBERG EBOOK, X"),
    "*** START OF THIS PROJECT GUTENBERG EBOOK EIN STÜCK\nIN VIELEN ZEILEN,\nVON NIEMAND ***",
]
ENDS = [
    "***END OF THE PROJECT GUTENBERG EBOOK DAS\nSTÜCK***",
    "End of the Project Gutenberg EBook of Das Stück, by \nNiemand\n\n*** END OF THIS PROJECT GUTENBERG X ***",
    'Ende dieses Projekt Gutenberg Etexes "Das Stück\nin einem Akt".\n\n*** END OF THE PROJECT GUTENBERG',
]


@pytest.mark.parametrize(("first", "end"), [*((line, END) for line in FIRST_LINES), *((START, end) for end in ENDS)])
def test_every_form_of_the_first_line_and_of_the_end(first, end):
    for page in (f"{HEADER}\n{first}\n\n{BOOK}\n\n\n{end}\n", f"{HEADER}\n{first}\n{BOOK}\n{end}"):
        assert found_in(page) == BOOK
    assert found_in(f"{first}\n\n{BOOK}\n\n{end}") == BOOK  # the header was taken off


ENOUGH = "\n\n".join(f"{i}. Auftritt\n\nDer Wind weht, und der Tag Nr. {i} vergeht." for i in range(60))


INSIDE = [  # what a book may begin or end with, or have anywhere
    *("Produced by A Person", "[Transcriber's Note: Spelling was kept.]", "THE END", "*** Ende ***"),
    *("Project Gutenberg is a fine thing, he said.", "Dieses Buch wurde von Gutenberg in Mainz gedruckt."),
]


@pytest.mark.parametrize("words", INSIDE)
def test_what_has_no_marker_stays_wherever_it_stands(words):
    for book in (f"{words}\n\n{BOOK}", f"{BOOK}\n\n{words}", f"{BOOK}\n\n{words}\n\n{BOOK}"):
        assert found_in(put_into_page(book)) == book


OTHER_TEXTS = [
    *("", "Habe nun, ach!\n\nProduced by nobody.\n"),
    f"How the files look\n\n{START}\n\nand then\n\n{END}\n\nThat is all.\n",  # someone writes about their form
    "Title: is said first, and later\n\n" + "so on\n" * 6000 + f"{START}\n\nZ\n",
    f"Er las: {START} und schwieg.\n",
]


@pytest.mark.parametrize("text", OTHER_TEXTS)
def test_other_texts_are_no_such_file(text):
    assert gutenberg_books(text) == ([], False)


def test_several_books_and_one_in_parts():
    assert gutenberg_books(put_into_page() + put_into_page(ENOUGH)) == ([BOOK, ENOUGH], True)
    parts = f"{BOOK}\n\nEnd of Project Gutenberg's Part 1\n\n{ENOUGH}"
    assert found_in(put_into_page(parts)) == f"{BOOK}\n\n{ENOUGH}"
