"""Phrases that give away a text thought in another language stay out: of pages, comments, docstrings and messages.

Each was common here once. The list is no substitute for reading aloud; it keeps the worst from coming back.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PHRASES = {  # and what to write instead
    r"\bbelongs? into\b": "belongs in",
    r"\bin vain\b": "without success",
    r"\banew\b": "again",
    r"\breckon": "compute, estimate",
    r"\bstands? (beside|behind|near|before)\b": "is next to, follows, precedes",
    r"\bforetell": "predict",
    r"\b(are|is) of before\b": "predates",
    r"\bof then\b": "of that time, earlier",
    r"\bparts of today\b": "modern parts",
    r"\bfile of rows\b": "CSV file",
    r"\b(did|does) other work\b": "was busy with other work",
    r"\bwhere there are such\b": "if there are any",
    r"\bnot to be had\b": "unavailable",
    r"\bpresuppos": "assume, require",
    r"\bgoes on (with|by|from)\b": "continues with",
    r"\bin the place of\b": "in place of, instead of",
    r"\bequal seconds\b": "equal time",
    r"\bas many as needed\b": "as required",
    r"\bmakes? [\d,]+ steps\b": "takes N steps",
    r"\bis no (parameter|scalar|multiple)\b": "is not a",
    r"\bof which each\b": "each of which",
    r"\bone of their own\b": "their own",
    r"\bshall\b": "must, should",
    r"\bwhat of\b": "which parts of",
    r"\bbecomes usual\b|\bbecame usual\b": "became common",
}
READ = ("*.md", "docs/**/*.md", *(f"{part}/**/*.{kind}" for part in (
    "tinygrad_lite", "gpt", "seq2seq", "text", "training", "extra", "benchmarks", "docs",
) for kind in ("py", "cu", "cuh", "js")), "*.py", "presets/**/*.toml", "benchmarks/**/*.toml")  # fmt: skip
CODE = re.compile(r"\"[^\"\n]*\"|“[^”]*”|```.*?```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def prose(path: Path) -> str:
    """Of a page, its text without code and quotations; of other files, all."""
    text = path.read_text(encoding="utf-8")
    return CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text) if path.suffix == ".md" else text


ANY = re.compile("|".join(f"(?:{phrase})" for phrase in PHRASES))  # one pass instead of many


def test_phrases_of_another_language_stay_out():
    found = []
    for path in sorted({path for pattern in READ for path in ROOT.glob(pattern) if "answers" not in path.parts}):
        text = prose(path).lower()
        for match in ANY.finditer(text):
            better = next(better for phrase, better in PHRASES.items() if re.match(phrase, match[0]))
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{path.relative_to(ROOT)}:{line}: {match[0]!r}; write: {better}")
    assert not found, "\n".join(found)
