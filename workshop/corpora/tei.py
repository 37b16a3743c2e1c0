"""Plays in TEI, the XML of the Text Encoding Initiative, as a reader knows them.

A speech is an element `sp` with the speaker's name, stage directions, prose (`p`) and verse (`l`, in groups `lg`).
It becomes a paragraph: the name in capitals, directions in parentheses, and verse line by line.

    <sp><speaker>Faust.</speaker><stage>unruhig</stage>
        <lg><l>Habe nun, ach!</l> <l>Philosophie</l></lg></sp>         FAUST (unruhig):
                                                                       Habe nun, ach!
                                                                       Philosophie

Reference: TEI Guidelines P5, chapter 7, "Performance Texts".
"""

import xml.parsers.expat
from collections.abc import Iterator
from xml.etree.ElementTree import Element, TreeBuilder

from tinygrad_lite.errors import CorpusError


def play_text(data: bytes, what: str) -> str:
    """The title and the body of a play; paragraphs are separated by blank lines.

    Left out are the cast, the editor's header and page numbers.

    Raises: CorpusError, naming `what`, if this is not a play in TEI.
    """
    root = parse_xml(data, what)
    body = root.find("text/body")
    try:
        titles = [words(title) for title in root.iterfind("teiHeader/fileDesc/titleStmt/title")]
        if body is None or not titles:
            raise CorpusError(f"{what} is not a play in TEI: it has no title or no body")
        return "\n\n".join([". ".join(titles), *paragraphs(body)])
    except RecursionError:
        raise CorpusError(f"{what} is not a play in TEI: its elements are nested too deep") from None


def parse_xml(data: bytes, what: str) -> Element:
    """The root of an XML document, names without their namespace.

    A document type declaration is refused: only there can a file name entities, such as other files to include, or
    words that stand for a million others.

    Raises: CorpusError.
    """

    def refuse(*declaration: object) -> None:
        raise CorpusError(f"{what} has a document type declaration, which no text here needs")

    builder = TreeBuilder()
    parser = xml.parsers.expat.ParserCreate(namespace_separator="}")
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = lambda name, attributes: builder.start(local(name), attributes)
    parser.EndElementHandler = lambda name: builder.end(local(name))
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
    except (xml.parsers.expat.ExpatError, LookupError, ValueError) as error:  # the others are for unknown encodings
        raise CorpusError(f"{what} is not valid XML: {error}") from None
    return builder.close()


def local(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition("}")[2]


def paragraphs(element: Element) -> Iterator[str]:
    """The paragraphs of a part of a play, in order."""
    for child in element:
        if child.tag == "div":
            yield from paragraphs(child)
        elif child.tag == "sp":
            yield speech(child)
        elif child.tag in ("head", "trailer", "stage", "p", "lg", "l"):
            yield "\n".join(lines(child))


def speech(sp: Element) -> str:
    """A speech: a first line "NAME (how):", unless nobody is named, and what is said, line by line."""
    name, how, said = "", "", []
    for child in sp:
        if child.tag == "speaker":
            name = words(child).rstrip(".:").upper()
        elif child.tag == "stage" and name and not how and not said:
            how = f" ({words(child).strip('().')})"
        else:
            said += lines(child)
    return "\n".join([f"{name}{how}:", *said] if name else said)


def lines(element: Element) -> list[str]:
    """The lines of verse, or the one line of prose, in an element; none if it is empty, as a page number is."""
    if element.tag == "lg":
        return [line for child in element for line in lines(child)]
    found = direction(element) if element.tag == "stage" else words(element)
    return [found] if found else []


def direction(stage: Element) -> str:
    """A stage direction in parentheses."""
    return f"({words(stage).removeprefix('(').removesuffix(')')})"


def words(element: Element) -> str:
    """The text in an element, in one line, with the stage directions in it."""
    parts = [element.text or ""]
    for child in element:
        parts += [direction(child) if child.tag == "stage" else words(child), child.tail or ""]
    return " ".join("".join(parts).split())
