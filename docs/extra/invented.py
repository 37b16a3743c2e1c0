"""How many of the names that a model wrote are new, and how many are made of what it read?

    python sample.py out/names --num_samples 30 > new.txt
    python docs/extra/invented.py new.txt                      --dataset my.txt, if it learned from another list

A name is new if it is no line of the list. It is made of what the model read if any three neighbours in it are
neighbours in the list, too, where the mark at either end counts as a neighbour.
"""

from extra.studies.baselines import TextOptions
from extra.studies.program import program
from training.cli.console import run_command, show
from training.corpora.texts import load_corpus


def trigrams_of(name: str) -> set[str]:
    """Any three neighbours in a name between two marks."""
    return {f"|{name}|"[i : i + 3] for i in range(len(name))}


@program("docs/extra/invented.py", TextOptions, "FILE", "new.txt")
def main(options: TextOptions, name: str) -> None:
    """Count the names of a file that are not in a list, and those whose trigrams are."""
    known = {*load_corpus(options.dataset, files=options.text).text.splitlines()}
    read = set().union(*map(trigrams_of, known))
    written = load_corpus(name).text.splitlines()
    unread = {text: sorted(trigrams_of(text) - read) for text in written}
    show(f"{sum(text not in known for text in written)} of {len(written)} are not in the list")
    show(f"{sum(not unread[text] for text in written)} of {len(written)} have only trigrams of the list")
    for text in filter(unread.get, unread):
        show(f"  {text}: {' '.join(unread[text])}")


if __name__ == "__main__":
    run_command("invented", main)
