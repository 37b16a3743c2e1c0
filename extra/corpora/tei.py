"""Plays in TEI, the XML of the Text Encoding Initiative, as a reader knows them.

A speech is an element `sp` with the speaker's name, stage directions, prose (`p`) and verse (`l`, in groups `lg`).
It becomes a paragraph: the name in capitals, directions in parentheses, and verse line by line.

    <sp><speaker>Faust.</speaker><stage>unruhig</stage>
        <lg><l>Habe nun, ach!</l> <l>Philosophie</l></lg></sp>         FAUST (unruhig):
                                                                       Habe nun, ach!
                                                                       Philosophie

Reference: TEI Guidelines P5, chapter 7, "Performance Texts".
"""

from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element


def play_text(data: bytes) -> str:
    """The title and the body of a play; paragraphs are separated by blank lines.

    Left out are the cast, the editor's header and page numbers. Only files of known hash are read, so none of them
    names entities, such as other files to include, or is nested too deep.
    """
    root = ElementTree.fromstring(data)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]  # without its namespace
    titles = [words(title) for title in root.iterfind("teiHeader/fileDesc/titleStmt/title")]
    return "\n\n".join([". ".join(titles), *paragraphs(root.find("text/body"))])


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
    """The lines of verse, or the one line of prose, in an element; none if it is empty, like a page number."""
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
