"""How many questions does a GPT that learned from conversations answer, and does it know what it cannot know?

    python docs/extra/questions.py out/chat                    three tests, 500 questions each and the fifty by hand
    python docs/extra/questions.py out/chat --wrong 5          also wrong answers, five of each test
    python docs/extra/questions.py out/chat --csv questions.csv

The tests are those of extra/chat/conversations.py: other questions than in the training (`templates`), other names,
things, sums and combinations (`combinations`), and fifty written by hand (`by hand`). An answer of the first
two is right if it is the one that the conversations give; one of the third, if what was asked for occurs in it. A
question is refused if it is answered by "Das weiß ich nicht." or "I do not know that.".
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from extra.chat.conversations import LANGUAGES, PARTS, Asked, conversations, sentences, table
from extra.families import GPT as FAMILY
from extra.pairs.answering import answer, is_conversing
from extra.studies.program import program, write_lines
from tinygrad_lite.config import option
from tinygrad_lite.errors import CheckpointError
from training.cli.console import run_command, say, show
from training.folder import tune_memory

REFUSALS = tuple(sentences("unknown", language, "answer")[0] for language in LANGUAGES)


@dataclass
class QuestionOptions:
    """The options of `python docs/extra/questions.py`."""

    count: int = option(500, "questions of each generated test", unit="questions", low=1)
    wrong: int = option(0, "wrong answers to show from each test", low=0)
    csv: str = option("", "write the shares of each kind of question into this file, too", is_path=True)
    device: str = option("cpu", "where to compute", choices=("cpu", "cuda", "auto"))


@program("docs/extra/questions.py", QuestionOptions, "CHECKPOINT", "out/chat")
def main(options: QuestionOptions, name: str) -> None:
    """Ask a GPT that learned from conversations what it did not see in training."""
    tune_memory()
    trained = FAMILY.read(Path(name))
    if not is_conversing(trained):
        advice = "python train.py chat makes one that did"
        raise CheckpointError(f"{trained.path} did not learn from conversations: {advice}")
    say(trained.about)
    model = trained.make_model(options.device)
    tests = {part: list(conversations(part, options.count)) for part in PARTS[1:]} | {"by hand": by_hand()}
    lines = ["test,kind,questions,right"]
    show(f"{'':14} questions   right   said 'I don't know', rightly   wrongly")
    for test, asked in tests.items():
        written = answer(model, trained.tokenizer, ["\n".join(one.turns) for one in asked])
        pairs = list(zip(asked, written, strict=True))
        right = [is_right(one, said, exactly=test != "by hand") for one, said in pairs]
        known, unknown = ([said in REFUSALS for one, said in pairs if one.is_known is so] for so in (True, False))
        show(f"{test:14} {len(asked):>9} {share(right):>7} {share(unknown):>30} {share(known):>9}")
        counts = Counter(one.kind for one in asked)
        rights = Counter(one.kind for one, is_so in zip(asked, right, strict=True) if is_so)
        lines += [f"{test},{kind},{count},{rights[kind]}" for kind, count in counts.items()]
        wrong = [pair for pair, is_so in zip(pairs, right, strict=True) if not is_so]
        for one, said in wrong[: options.wrong]:
            show(f"  {' / '.join(one.turns)}\n    -> {said}\n    == {one.answer}")
    if options.csv:
        write_lines(Path(options.csv), lines)
        say(f"wrote {options.csv}")


def by_hand() -> list[Asked]:
    """The fifty questions, each with what must occur in its answer: the end of a refusal if it cannot be known."""
    rows = table("by_hand")
    return [
        Asked("by hand", (text,), said, not any(one.endswith(f"{said}.") for one in REFUSALS)) for text, said in rows
    ]


def is_right(asked: Asked, said: str, exactly: bool) -> bool:
    """Whether an answer is right: the same, or with the words that are asked for in it."""
    if exactly:
        return said == asked.answer
    return f" {asked.answer}" in f" {said}" and (said in REFUSALS) != asked.is_known


def share(found: Sequence[bool]) -> str:
    """As a percentage."""
    return f"{sum(found) / len(found):.1%}" if found else "-"


if __name__ == "__main__":
    run_command("questions", main)
