"""First names from `nam_dict.txt` by Jörg Michael, which has 48,000 of 54 countries, in the package `gender-guesser`.

A line has a name and, in one column for each country, how common it is there, from 1 to D:

    F  Aaliyah                        1 1
"""

from training.corpora.wheel import Wheel, wheel_files

WHEEL = Wheel("gender-guesser==0.4.0", 379_297, "7cb01ce5d8d43b94573498bc02c959b622872abd399622ca67d1b73ba6e7e222")
COUNTRIES = slice(30, 72)  # of Europe, and the USA


def names() -> str:
    """The names in letters from a to z, one in a line, in alphabetical order."""
    (table,) = wheel_files(WHEEL, ["gender_guesser/data/nam_dict.txt"]).values()
    # Lines with = name short forms; those with + repeat a name, with ae in place of ä.
    rows = [row for row in table.decode("utf-8").split("\n") if row[:1] not in "#=" and row[29:30] != "+"]
    found = {row[3:29].strip().lower() for row in rows if row[COUNTRIES].strip()}
    return "".join(f"{name}\n" for name in sorted(found) if name.isascii() and name.isalpha())
