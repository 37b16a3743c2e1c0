"""Files of Project Gutenberg: the book alone, without the Project's header and licence.

These end and begin at marker lines of two generations. Since about 2003 the book has been between

    *** START OF THIS PROJECT GUTENBERG EBOOK FAUST ***    and    *** END OF THIS PROJECT GUTENBERG EBOOK FAUST ***

and before that between *END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END* and a sentence such as "End of
the Project Gutenberg Etext of Faust". The volunteers' notes in a book (who typed it, which misprints were corrected)
have no markers and stay. A text is such a file only if there is a header above its marker line; one that only mentions
the Project is kept whole.

    >>> head = "Title: Faust\\n\\n*** START OF THE PROJECT GUTENBERG EBOOK FAUST ***\\n\\n"
    >>> tail = "\\n\\nEnd of Project Gutenberg's Faust\\n\\n*** END OF THE PROJECT GUTENBERG EBOOK FAUST ***\\n"
    >>> gutenberg_books(head + "Habe nun, ach!" + tail)
    (['Habe nun, ach!'], True)
    >>> gutenberg_books("Project Gutenberg has Faust.")
    ([], False)
"""

import re
from itertools import pairwise

from tinygrad_lite.errors import CorpusError
from workshop.corpora.cleaning import normalise

FLAGS = re.IGNORECASE | re.MULTILINE


def one_of(*patterns: str) -> str:
    """A regular expression that matches any of the patterns."""
    return f"(?:{'|'.join(patterns)})"


# ------------------------------------------------------------------------------------------------ marker lines

# The book begins after one of these. With a long title the first one has several lines, the last ending with ***.
# Below the second, old files have more lines of the header, in brackets, and perhaps the same line again.
SMALL_PRINT = r"^\*{0,9} ?(?:END\W{0,9})?(?:THE )?SMALL PRINT!.*END\*?$"
RIGHTS = r"^\[(?:Portions of this|Project Gutenberg is a)[^\[\]]{0,1000}\]$"
BEGINS = re.compile(
    one_of(
        r"^[ \t]*\*{2,9} ?START OF (?:TH(?:E|IS) )?(?:COPYRIGHTED )?PROJECT GUTENBERG(?:(?:.+\n){0,5}?.*\*\*|.*)$",
        rf"{SMALL_PRINT}(?:\s*(?:{RIGHTS}|{SMALL_PRINT}))*",
        r'^\["Small Print" V.*\]$',
    ),
    FLAGS,
)
# The header above it contains one of these; with the old, long licence it has up to about 15,000 characters.
HEADER = re.compile(
    one_of(
        r"\A\W*(?:this is )?(?:the )?(?:world )?project gutenberg.*(?:e-?book|e-?text|, by\b)",
        r"^(?:Title|Author|Language|Release Date|Character set encoding): ",
        "for the use of anyone anywhere",
        "Copyright laws are changing",
        "SMALL PRINT!",
    ),
    FLAGS,
)
LONGEST_HEADER = 30_000
# The book ends at the first of these lines, or else at the last paragraph that announces the end.
ENDS = re.compile(r"^[ \t]*\*{2,9} ?(?:END OF (?:TH(?:E|IS) )?(?:COPYRIGHTED )?PROJECT\b|START: FULL LICENSE).*", FLAGS)
SAYS_END = re.compile(
    r"^[^\w\n]{0,20}"
    + one_of(
        r"(?:this is )?(?:the )?(?:end|ende|fin|fine|einde|slut)\b.{0,40}?\b"
        + one_of("proje[ck]t gutenberg", "this e-?text", "dieses e-?text"),
        "this is a copyrighted project gutenberg",
    )
    + r".*(?:\n.+)*",
    FLAGS,
)
# After that line there is nothing, or the licence.
LICENCE = re.compile(
    r"\s*\Z|.{0,2000}?(?:Updated editions will|This file should be named|FULL PROJECT GUTENBERG LICENSE)",
    FLAGS | re.DOTALL,
)


def gutenberg_text(page: str, where: str) -> str:
    """The book in a downloaded file; CorpusError, naming `where`, if it is an error page or an incomplete book."""
    books, whole = gutenberg_books(normalise(page))
    if not whole:
        raise CorpusError(f"{where} is not a whole book of Project Gutenberg with its first and last lines")
    return "\n\n".join(books)


def gutenberg_books(text: str) -> tuple[list[str], bool]:
    """The books in a file of Project Gutenberg (none for any other text), and whether the last one is complete.

    There may be several, as after `cat *.txt`. Spaces at the ends of lines, and repeated blank lines, are removed.
    """
    page = "\n".join(line.rstrip(" \t") for line in text.split("\n"))
    ends = [*ENDS.finditer(page)]
    closed = bool(ends) and LICENCE.match(page, ends[-1].end()) is not None
    starts = begins(page, closed)
    if closed and not starts:  # the header was removed
        return [book_in(page[: ends[0].start()])], False
    books, whole = [], False
    for start, stop in pairwise([*starts, len(page)]):
        over = ENDS.search(page, start, stop) or next(reversed([*SAYS_END.finditer(page, start, stop)]), None)
        if over is None and stop < len(page):
            continue  # a header with marker lines of both generations
        book = book_in(page[start : over.start() if over else stop])
        if book:
            books.append(book)
            whole = over is not None
    return books, whole


def begins(page: str, closed: bool) -> list[int]:
    """The positions where the books begin: after marker lines with a header above them, or with nothing above.

    If the last book is `closed` by a marker line, anything may precede the first one.
    """
    starts, at = [], 0
    for mark in BEGINS.finditer(page):
        above = page[at : mark.start()]
        if not starts and mark.start() > LONGEST_HEADER:
            break
        if HEADER.search(above) or (at == 0 and (closed or not above.strip())):
            starts.append(mark.end())
        at = mark.end()
    return starts


def book_in(part: str) -> str:
    """The part of a file between its marker lines, without the paragraphs that announce an end."""
    return re.sub(r"\n{3,}", "\n\n", SAYS_END.sub("", part)).strip("\n")
