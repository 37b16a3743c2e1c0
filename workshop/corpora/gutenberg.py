"""Files of Project Gutenberg: the book alone, without the additions of the Project and its volunteers.

A file has three layers. The outermost are the Project's header and licence, which end and begin at marker lines of two
generations. Since about 2003 the book has been between

    *** START OF THIS PROJECT GUTENBERG EBOOK FAUST ***    and    *** END OF THIS PROJECT GUTENBERG EBOOK FAUST ***

and before that between *END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END* and a sentence such as "End of
the Project Gutenberg Etext of Faust". Inside these come the volunteers' notes, without markers: who typed the book, who
provided it, which misprints were corrected. They are recognised by their first words and position. The rest is the
book. A text is such a file only if there is a header above its marker line; one that only mentions the Project is kept
whole.

    >>> head = "Title: Faust\\n\\n*** START OF THE PROJECT GUTENBERG EBOOK FAUST ***\\n\\nProduced by A Person\\n\\n"
    >>> tail = "\\n\\nEnd of Project Gutenberg's Faust\\n\\n*** END OF THE PROJECT GUTENBERG EBOOK FAUST ***\\n"
    >>> gutenberg_books(head + "Habe nun, ach!" + tail)
    (['Habe nun, ach!'], True)
    >>> gutenberg_books("Project Gutenberg has Faust.")
    ([], False)
"""

import re
from itertools import pairwise
from typing import NamedTuple

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
# The book ends at the first of these lines, or else at the last sentence that announces the end.
ENDS = re.compile(r"^[ \t]*\*{2,9} ?(?:END OF (?:TH(?:E|IS) )?(?:COPYRIGHTED )?PROJECT\b|START: FULL LICENSE).*", FLAGS)
SAYS_END = re.compile(
    r"^[^\w\n]{0,20}"
    + one_of(
        r"(?:this is )?(?:the )?(?:end|ende|fin|fine|einde|slut)\b.{0,40}?\b"
        + one_of("proje[ck]t gutenberg", "this e-?text", "dieses e-?text"),
        "this is a copyrighted project gutenberg",
    ),
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
        return [without_notes(page[: ends[0].start()])], False
    books, whole = [], False
    for start, stop in pairwise([*starts, len(page)]):
        over = ENDS.search(page, start, stop) or next(reversed([*SAYS_END.finditer(page, start, stop)]), None)
        if over is None and stop < len(page):
            continue  # a header with marker lines of both generations
        book = without_notes(page[start : over.start() if over else stop])
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


# ------------------------------------------------------------------------------------------- volunteers' notes

# The first words of a paragraph about the making of a file; looked for in a book's first paragraphs and at its end.
MADE = one_of(
    *("produced", "prepared", "transcribed", "scanned", "typed", "keyed", "digiti[sz]ed", "proof-?(?:read|ed)"),
    *("(?:re-?)?formatted", "erstellt", "produziert", "gescannt", "digitalisiert", "transkribiert", "korrekturgelesen"),
)
CREDIT = re.compile(
    r"\W*"
    + one_of(
        # Produced by; Scanned and proofread by; Transcribed from; This Project Gutenberg Etext prepared by
        rf"(?:credits: )?{MADE}(?:,? (?:(?:and|und|&) )?{MADE})* (?:by|from|von|durch)\b",
        rf"(?:\w+ ){{0,4}}e-?(?:text|book) (?:{MADE}|created|provided|converted|corrected)\b",
        # This Etext was; The Project Gutenberg Etext of; This Etext is in; Dieser E-Text wurde
        r"(?:(?:this|the|dies\w*) )?(?:proje[ck]t gutenberg(?:['’]s)? )?e-?(?:text|book)s? (?:was|wurde|of|is in)\b",
        # This book was generously provided by the Gutenberg Projekt; Dieses Buch wurde uns vom "Gutenberg Projekt-DE"
        r"(?=.*"
        + one_of("proje[ck]t[- ]gutenberg", "gutenberg[- ]proje[ck]t", "internet[ -]a", r"https?:|www\.", "html")
        + r"|.*(?:[78][ -]bit|page images|images generously|scanned (?:by|images|pages)))"
        r"(?:this|the|dies\w*) (?:\w+ ){0,2}(?:book|text|work|edition|buch|ausgabe|werk)\b.{0,40}?"
        r" (?:was|were|wurde|has been|contains|is|ist)\b",
        # This file was produced from images; Diese Datei wurde; This electronic edition
        "this file (?:was|contains|is)",
        "diese datei (?:wurde|enthält|ist)",
        r"(?:this|dies\w*) (?:ele[ck]troni|digital)\w* (?:text|book|edition|version|buch|ausgabe)",
        "we are releasing two versions",
        "this is the [78]-bit version",
        # Note: Project Gutenberg also has an HTML version; Note: Images of the original pages are available through
        "(?:note|hinweis): .*(?:project gutenberg|internet archive|https?:)",
        r"(?:we thank|wir danken|(?:many )?thanks to)(?: \S+){1,4}\Z",
        r"(?:we thank|wir danken|(?:many )?thanks to)\b.*(?:proje[ck]t[- ]gutenberg|gutenberg[- ]proje[ck]t)",
    ),
    re.IGNORECASE,
)
# Words in a paragraph that continues such a paragraph; alone, they could be the author's.
SOURCE = re.compile(r"pgdp|proofread|internet archive|gallica|https?:|www\.|\S@\S+\.\w", re.IGNORECASE)
FIRST = 12  # paragraphs
LONGEST = 1_000  # characters of such a paragraph

# A transcriber's note, anywhere in a file: in brackets, between two lines of a repeated character, or without either.
NOTE = (
    one_of(
        r"transcriber\W{0,2}s?\W{0,2}\s?(?:end)?(?:notes?|corrections?|comments?|remarks?)",
        r"notes?\s(?:by|from|of|on)\sthe\s(?:transcriber|transcription|e-?text)",
        r"(?:(?:an|be)merkung(?:en)?|hinweise?)\s(?:zu[rm]?|de[rs])\s(?:trans[ck]ri|e-?text|e-?book|ele[ck]troni)\w*",
        r"im\sfolgenden\swerden\salle\sgeänderten\stextzeilen",
        r"not[ae]s?\sd\w+\stra\w*scri\w+",
    )
    + r"\b"
)
BRACKET = re.compile(rf"[\[{{]\s*(?P<note>{NOTE})?|[\]}}]", re.IGNORECASE)
STARTS_NOTE = re.compile(rf"\W{{0,200}}{NOTE}(?P<more>.*\w)?", re.IGNORECASE)
FENCE = re.compile(r"\s*\+?([-=#*_~])\1{9,}\+?\s*")
ABOUT_SPELLING = re.compile(
    r"spelling|punctuation|hyphen|typograph|misprint|corrected|preserved|retained|italic|footnote"
    r"|schreibweise|rechtschreib|zeichensetzung|interpunktion|druckfehler|korrigiert|gesperrt|antiqua|beibehalten",
    re.IGNORECASE,
)
LONGEST_NOTE = 20_000  # characters


class Paragraph(NamedTuple):
    """A paragraph of a book, with its position."""

    text: str
    line: str  # the same on one line
    gap: int  # number of line ends before it
    at: int  # number of characters before it


def without_notes(book: str) -> str:
    """The book without the paragraphs of the volunteers."""
    book = "\n\n" + SAYS_END.sub(r"\n\g<0>", without_bracketed_notes(book)).strip("\n")
    paragraphs = [
        Paragraph(match[2], " ".join(match[2].split()), len(match[1]), match.start(2))
        for match in re.finditer(r"(\n{2,})([^\n]+(?:\n[^\n]+)*)", book)
    ]
    notes = {i for i, paragraph in enumerate(paragraphs) if not paragraph.line or SAYS_END.match(paragraph.line)}
    for i, paragraph in enumerate(paragraphs):
        if i not in notes and STARTS_NOTE.match(paragraph.line):
            notes.update(open_note(paragraphs, i, len(book)))
    lines = [paragraph.line if len(paragraph.line) <= LONGEST else "" for paragraph in paragraphs]
    for i, line in enumerate(lines[:FIRST]):
        if CREDIT.match(line) or (i - 1 in notes and SOURCE.search(line)):
            notes.add(i)
    for i, line in reversed([*enumerate(lines)]):
        if i not in notes and not CREDIT.match(line):
            break
        notes.add(i)
    return "\n\n".join(paragraph.text for i, paragraph in enumerate(paragraphs) if i not in notes)


def without_bracketed_notes(book: str) -> str:
    """Remove the notes in brackets, which may contain brackets and blank lines."""
    kept, at, begun, depth = [], 0, None, 0
    for bracket in BRACKET.finditer(book):
        if begun is None or bracket.start() - begun > LONGEST_NOTE:
            begun, depth = (bracket.start(), 1) if bracket["note"] else (None, 0)
            continue
        depth += 1 if bracket[0][0] in "[{" else -1
        if depth == 0:
            kept.append(book[at:begun])
            at, begun = bracket.end(), None
    return "".join(kept) + book[at:]


def open_note(paragraphs: list[Paragraph], i: int, length: int) -> range:
    """The paragraphs of the note that begins with paragraph i, in a book of `length` characters.

    If there is an opening line: all up to the closing line. If the note is set apart in the second half of the book,
    and the rest is no longer than a list of misprints: all that is left. Otherwise one paragraph, or two if the first
    is only a heading, and the paragraphs directly below that are about spelling.
    """
    first = paragraphs[i]
    fenced = i > 0 and FENCE.fullmatch(paragraphs[i - 1].text) is not None
    if fenced or FENCE.fullmatch(first.text.partition("\n")[0]):
        for end in range(i, len(paragraphs)):
            if paragraphs[end].at > first.at + LONGEST_NOTE:
                break
            if FENCE.fullmatch(paragraphs[end].text.rpartition("\n")[2]):
                return range(i - fenced, end + 1)
    if (fenced or first.gap > 2) and length - first.at <= min(first.at, max(6_000, length // 20)):
        return range(i - fenced, len(paragraphs))
    end = i + 1 if STARTS_NOTE.match(first.line)["more"] else i + 2
    while end < len(paragraphs) and paragraphs[end].gap == 2 and ABOUT_SPELLING.search(paragraphs[end].line[:LONGEST]):
        end += 1
    return range(i, min(end, len(paragraphs)))


# ---------------------------------------------------------------------------------------------------- encodings

SAID = re.compile(r"^Cha\w+ set encoding:(.*)", FLAGS)
NUMBERED = re.compile(r"(8859|latin|windows|cp|code ?page)\D{0,3}(\d+)", re.IGNORECASE)
FITTING = re.compile(
    one_of(
        r"[ß-öø-ÿ](?![A-Z])|\b[À-ÖØ-Þ](?=[a-z]|\b)",  # letters, lower-case ones or at the beginning of a word
        r"(?<!\w)[„“‘](?=\w)|(?<=[\w.,;:!?])[“”’‘](?!\w)|(?<=\w)’(?=\w)|[–—…€]",  # quotation marks, dashes
    )
)


def old_encoding(data: bytes) -> str | None:
    """The encoding of a file of Project Gutenberg that is not UTF-8; None for any other file, and if nothing fits.

    It is the encoding that the header names. If it names none, or ASCII, or ISO-8859-1, the bytes are examined too:
    those from 0x80 to 0x9f, unused in ISO-8859-1, are quotation marks and dashes in cp1252 (Windows), and letters in
    cp437 and cp850 (DOS) and on the Macintosh. The result is the encoding with the most letters and marks in plausible
    places.
    """
    page = normalise(data.decode("latin-1"))
    if not gutenberg_books(page)[0]:
        return None
    said = SAID.search(page)
    numbered = NUMBERED.search(said[1]) if said else None
    if numbered and numbered[2] != "1":
        family = {"8859": "ISO-8859-", "latin": "latin"}.get(numbered[1].lower(), "cp")
        choices = [family + numbered[2]]
    elif said and not numbered and "ascii" not in said[1].lower():
        return None  # UTF-8, say, but damaged
    else:
        choices = ["cp1252", "cp437", "cp850", "mac-roman"] if re.search("[\x80-\x9f]", page) else ["ISO-8859-1"]

    def fit(encoding: str) -> int:
        try:
            return len(FITTING.findall(data.decode(encoding)))
        except (LookupError, UnicodeDecodeError):
            return -1

    best = max(choices, key=fit)  # the first of equals
    return best if fit(best) >= 0 else None
