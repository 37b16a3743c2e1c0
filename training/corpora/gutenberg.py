"""Files of Project Gutenberg: the book alone, without the Project's header and licence.

The book is between two lines, such as

    *** START OF THE PROJECT GUTENBERG EBOOK FAUST ***    and    *** END OF THE PROJECT GUTENBERG EBOOK FAUST ***

The volunteers' notes in a book (who typed it, which misprints were corrected) have no such lines and stay. A text is
such a file only if there is a header above its first line; one that only mentions the Project is kept whole.

    >>> head = "Title: Faust, from Project Gutenberg\\n\\n*** START OF THE PROJECT GUTENBERG EBOOK FAUST ***\\n\\n"
    >>> tail = "\\n\\nEnd of Project Gutenberg's Faust\\n\\n*** END OF THE PROJECT GUTENBERG EBOOK FAUST ***\\n"
    >>> gutenberg_books(head + "Habe nun, ach!" + tail)
    (['Habe nun, ach!'], True)
    >>> gutenberg_books("Project Gutenberg has Faust.")
    ([], False)
"""

import re
from itertools import zip_longest

FLAGS = re.IGNORECASE | re.MULTILINE
# With a long title the line has several lines, the last ending with ***.
MARK = re.compile(
    r"^[ \t]*\*{2,9} ?(?:(START)|END) OF (?:TH(?:E|IS) )?(?:COPYRIGHTED )?PROJECT\b(?:(?:.+\n){0,5}?.*\*\*|.*)$", FLAGS
)
LONGEST_HEADER = 30_000  # characters; the licence at the end of a book above the next one has about 20,000
# A paragraph that announces the end, above its line.
SAYS_END = re.compile(r"^(?:the )?end(?:e dieses| of)\b.{0,40}?\bproje[ck]t gutenberg.*(?:\n.+)*", FLAGS)


def gutenberg_books(text: str) -> tuple[list[str], bool]:
    """The books in a file of Project Gutenberg (none for any other text), and whether the last one is complete.

    There may be several, as after `cat *.txt`. Spaces at the ends of lines, and repeated blank lines, are removed.
    """
    page = "\n".join(line.rstrip(" \t") for line in text.split("\n"))
    marks, books, whole, end = [*MARK.finditer(page)], [], False, 0
    for mark, following in zip_longest(marks, marks[1:]):
        above, end = page[end : mark.start()], mark.end()
        is_header = not above.strip() or (len(above) <= LONGEST_HEADER and "project gutenberg" in above.lower())
        inside = SAYS_END.sub("", page[end : following.start() if following else len(page)])
        if mark[1] and is_header and (book := re.sub(r"\n{3,}", "\n\n", inside).strip("\n")):
            books.append(book)
            whole = following is not None and not following[1]
    return books, whole
