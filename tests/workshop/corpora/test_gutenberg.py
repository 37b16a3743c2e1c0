"""Files of Project Gutenberg, made up here in the forms that real ones have."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad_lite.errors import CorpusError
from workshop.corpora.gutenberg import gutenberg_books, gutenberg_text

BOOK = (
    "Das Stück\n\nvon Niemand\n\nERSTER AKT\n\n  Grün ist der Baum, die Straße weiß,\n  und spät wird's auch.\n\nENDE"
)
HEADER = """The Project Gutenberg EBook of Das Stück, by Niemand

This eBook is for the use of anyone anywhere at no cost and with
almost no restrictions whatsoever.

Title: Das Stück

Character set encoding: {encoding}
"""
NEWER = (
    HEADER
    + """
*** START OF THIS PROJECT GUTENBERG EBOOK DAS STÜCK ***




{book}




*** END OF THIS PROJECT GUTENBERG EBOOK DAS STÜCK ***

***** This file should be named 1-8.txt or 1-8.zip *****

Produced by A Person

Updated editions will replace the previous one--the old editions
will be renamed.

*** START: FULL LICENSE ***

THE FULL PROJECT GUTENBERG LICENSE
"""
)
OLDER = """The Project Gutenberg Etext of Das Stück
#26 in our series by Niemand

Copyright laws are changing all over the world, be sure to check
the copyright laws for your country before posting these files!!

******This file should be named 8stck10.txt or 8stck10.zip******

***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***
Why is this "Small Print!" statement here?  You know: lawyers.

*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*





{book}





Ende dieses Projekt Gutenberg Etextes "Das Stück" von Niemand
"""
KINDS = {"newer": NEWER, "older": OLDER}


def put_into(kind, book=BOOK, encoding="UTF-8"):
    return KINDS[kind].replace("{book}", book).replace("{encoding}", encoding)


def found_in(page):
    """The only book in a whole file."""
    books, whole = gutenberg_books(page)
    assert whole
    assert len(books) == 1
    return books[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_book_alone_is_taken_out_of_both_kinds(kind):
    assert found_in(put_into(kind)) == BOOK
    windows = "\ufeff" + put_into(kind).replace("\n", "  \r\n")
    assert gutenberg_text(windows, "page") == BOOK


RIGHTS = """[Portions of this header are copyright (C) 2001 by Michael S. Hart
and may be reprinted only when these Etexts are free of all fees.]
"""
TRADEMARK = """[Project Gutenberg is a TradeMark and may not be used in any sales
of Project Gutenberg Etexts without express permission.]
"""


@pytest.mark.parametrize("gap", ["", "\n", "\n\n\n"])
@pytest.mark.parametrize("repeated", [False, True])
def test_bracketed_lines_of_an_old_header_are_not_the_book(gap, repeated):
    end = "*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n"
    page = put_into("older").replace(end, f"{end}{gap}{RIGHTS}{gap}{TRADEMARK}" + (gap + end) * repeated)
    assert found_in(page) == BOOK
    own = "[Project Gutenbergs Garten]\n\n" + BOOK
    assert found_in(put_into("older", own)) == own


@pytest.mark.parametrize(
    "line",
    [
        "*** START OF THE PROJECT GUTENBERG EBOOK X ***",
        "***START OF THE PROJECT GUTENBERG EBOOK X***",
        "*** START OF THE COPYRIGHTED PROJECT GUTENBERG EBOOK X ***",
        "  *** START OF THIS PROJECT GUTENBERG EBOOK A*B ***",
        "*** START OF THIS PROJECT GUTENBERG EBOOK EIN STÜCK\nIN VIELEN ZEILEN,\nVON NIEMAND ***",
        "*** START OF THE PROJECT GUTENBERG EBOOK, X",
        "*END*THE SMALL PRINT!  FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*",
        "*END THE SMALL PRINT! FOR PUBLIC DOMAIN EBOOKS*Ver.02/11/02*END*",
        "*SMALL PRINT! Ver.03.17.02 FOR COPYRIGHT PROTECTED ETEXTS*END*",
        '["Small Print" V.12.08.93]',
    ],
)
def test_every_form_of_the_first_line(line):
    end = "\n\n*** END OF THE PROJECT GUTENBERG EBOOK X ***"
    assert found_in(f"{HEADER}\n{line}\n\n{BOOK}{end}") == BOOK
    assert found_in(f"{HEADER}\n{line}\n{BOOK}{end}") == BOOK
    assert found_in(f"{line}\n\n{BOOK}{end}") == BOOK  # the header was taken off


@pytest.mark.parametrize(
    "closing",
    [
        "*** END OF THE PROJECT GUTENBERG EBOOK DAS STÜCK ***",
        "***END OF THE PROJECT GUTENBERG EBOOK DAS\nSTÜCK***",
        "End of the Project Gutenberg EBook of Das Stück, by \nNiemand\n\n*** END OF THIS PROJECT GUTENBERG X ***",
        "End of Project Gutenberg's Das Stück, by Niemand",
        "END OF THE PROJECT GUTENBERG ETEXT OF DAS STÜCK",
        "End of this Project Gutenberg Etext of Das Stück by Niemand",
        "***End of this Project Gutenberg e-text***",
        "*** START: FULL LICENSE ***\n\nTHE FULL PROJECT GUTENBERG LICENSE",
        'Ende dieses Projekt Gutenberg Etexes "Das Stück\nin einem Akt" von Niemand.',
        "Ende dieses Project Gutenberg Etextes Das Stück\n\nEnd of Project Gutenberg Etext Das Stück",
        "Ende dieses Etextes",
        "The End of Project Gutenberg Etext of Das Stück",
        "**This is a COPYRIGHTED Project Gutenberg Etext, Details Above**",
    ],
)
def test_every_form_of_the_end(closing):
    start = f"{HEADER}\n*** START OF THE PROJECT GUTENBERG EBOOK DAS STÜCK ***\n\n"
    assert found_in(f"{start}{BOOK}\n\n\n{closing}\n") == BOOK
    assert found_in(f"{start}{BOOK}\n{closing}\n") == BOOK  # without a blank line


ENOUGH = "\n\n".join(f"{i}. Auftritt\n\nDer Wind weht, und der Tag Nr. {i} vergeht." for i in range(60))
INSIDE = [  # what a book may begin or end with, or have anywhere
    *("Produced by A Person", "Anmerkungen zur Transkription\n\nGesperrt: +so+", "Mail: you@example.org"),
    *("[Transcriber's Note: Spelling was kept.]", "[Illustration: Ein Baum]", "[Anmerkung: Der Baum ist grün.]"),
    *("Project Gutenberg is a fine thing, he said.", "The Project Gutenberg was begun in 1971."),
    *("This book was printed by Johannes Gutenberg.", "Dieses Buch wurde von Gutenberg in Mainz gedruckt."),
    *("The book was kept in the archive.", "Prepared for battle, the knight was held by fear."),
    *("Produced, as it was, in haste, the play failed.", "Thanks to the weather, we came home early."),
    *("Note: the image of the king.", "Translated by A Person\n\nEdited by B Person", "Herausgegeben von Niemand"),
    *("Ende gut, alles gut.", "THE END", "End of the first act", "* * * * *", "*** Ende ***"),
]


@pytest.mark.parametrize("words", INSIDE)
@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_marker_stays_wherever_it_stands(kind, words):
    for book in (f"{words}\n\n{BOOK}", f"{BOOK}\n\n{words}", f"{BOOK}\n\n{words}\n\n{BOOK}"):
        assert found_in(put_into(kind, book)) == book


words = st.text("abcdeäöüßÄÖÜ ,.;*-'\"#[]", max_size=40).map(str.strip)


@given(st.lists(words), st.sampled_from(sorted(KINDS)))
def test_nothing_of_a_book_is_lost(lines, kind):
    book = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
    if book:
        assert found_in(put_into(kind, book)) == book


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Habe nun, ach!\n\nProduced by nobody.\n",
        "Project Gutenberg has it.\n\nEnd of the Project Gutenberg story.\n",
        # Someone writes about the form of these files.
        "How the files look\n\n*** START OF THE PROJECT GUTENBERG EBOOK X ***\n\nand then\n\n"
        "*** END OF THE PROJECT GUTENBERG EBOOK X ***\n\nThat is all.\n",
        "Title: is said first, and later\n\n"
        + "so on\n" * 6000
        + "*** START OF THE PROJECT GUTENBERG EBOOK X ***\n\nZ\n",
        "Erst\n\n*** START OF PART ONE ***\n\ndann\n\n*** END OF PART ONE ***\n",
        "Erst\n\nTranscriber's Note: odd.\n\nTitle: x\n",
        "Er las: *** START OF THE PROJECT GUTENBERG EBOOK X *** und schwieg.\n",
    ],
)
def test_other_texts_are_no_such_file(text):
    assert gutenberg_books(text) == ([], False)


BEGINS = "*** START OF THE PROJECT GUTENBERG EBOOK X ***\n"
ENDS = "\n*** END OF THE PROJECT GUTENBERG EBOOK X ***\n"


def test_several_files_in_one_are_several_books():
    for first in KINDS:
        for second in KINDS:
            assert gutenberg_books(put_into(first) + put_into(second, ENOUGH)) == ([BOOK, ENOUGH], True)


def test_a_file_with_lines_of_both_generations():
    older, _, rest = OLDER.partition("{book}")
    assert found_in(HEADER + BEGINS + older + BOOK + rest + ENDS) == BOOK
    assert found_in(HEADER + BEGINS + BOOK + ENDS + older) == BOOK  # the small print at the end, as in 2003


def test_a_book_in_parts_that_say_where_they_end():
    parts = f"{BOOK}\n\nEnd of Project Gutenberg's Part 1\n\n{ENOUGH}"
    assert found_in(put_into("newer", parts)) == f"{BOOK}\n\n{ENOUGH}"
    assert found_in(put_into("older", parts)) == f"{BOOK}\n\n{ENOUGH}"


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_file_is_cleaned_at_the_end_that_it_has(kind):
    page = put_into(kind)
    assert gutenberg_books(page[: page.index("ENDE")]) == ([BOOK.removesuffix("\n\nENDE")], False)
    if kind == "newer":
        assert gutenberg_books(page[page.index("Das Stück\n\nvon") :]) == ([BOOK], False)


@pytest.mark.parametrize(
    "page",
    [
        "<html>Forbidden</html>",
        "*** START OF THE PROJECT GUTENBERG X ***\nhalf a boo",
        put_into("newer").partition("ENDE")[0],
        put_into("older").partition("ENDE")[0],
        put_into("newer", ""),
        "",
    ],
)
def test_a_download_that_is_not_whole_is_refused(page):
    with pytest.raises(CorpusError, match="page 7 is not a whole book"):
        gutenberg_text(page, "page 7")
