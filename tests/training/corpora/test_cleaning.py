"""From raw sources to clean text, on snippets made up here."""

import unicodedata

import pytest

from tinygrad_lite.errors import CorpusError
from training.corpora import cleaning
from training.corpora.cleaning import GOETHE, goethe_text, words_of

LETTERS = """Am 4. Mai 1771

Ein erster Brief, er ist "kurz" und kostet $5 \\n nicht.

Noch ein Absatz—mit Strich.

Am 10. Mai

Ein zweiter Brief, vom Regen.

Den 17. Mai

Ein dritter Brief, vom Wind."""
PHP = f"<?php\nclass A {{\n  // 'nothing' here\n  static $text = <<<'EOT'\n{LETTERS}\nEOT;\n  /* legal words */\n}}\n"
FORTUNES = """Die Wolke zieht, der Hügel bleibt
und keiner fragt warum.
\t\t-- Johann Wolfgang von Goethe (Ein Stück I, 3. Mai 1830)
%
Ganz anderer Leute Gedanken.
\t\t-- Karl Niemand
%
Goethe war auch nur ein Spaziergänger.
\t\t-- Karl Niemand (Über Goethe)
%
Morgens baut der Maurer
   seine Mauer.
\t\t-- Goethe, Maximen und Reflexionen, Nr. 9999
%
Die Wolke zieht, der Hügel bleibt.
\t\t-- Goethe
%
Ohne Namen und ohne Strich.
"""


ATTRIBUTIONS = [
    *("-- Goethe", "-- Göthe", "-- Johann Wolfgang von Goethe", "-- J. W. v. Goethe"),
    "--Johann Wolfgang von Goethe (an Zelter, 19. Okt. 1829)",
    "-- Johann Wolfgang von Goethe\n(Auf ein Lied geschrieben)",
]
LEFT_OUT = [  # words of others, and unclean ones
    *("Über Goethe spricht jeder.\n\t\t-- Jean Paul\n", "Goethe: Das habe ich gesagt.\n", "\t\t-- Goethe\n"),
    "Nur so ein Satz.\n\t\t-- Heinrich von Kleist (Herr von Goethe)\n",
    "Nur so ein Satz.\n\t\t-- Johann Wolfgang von Goethe\n(Buch der falsch zugeordneten Worte)\n",
    "Da sprach Johann Wolfgang von Goethe: nein.\n\t\t-- Johann Wolfgang von Goethe\n",
    *("Ein [...] Satz.\n\t\t-- Goethe\n", "Goetheaner sind viele.\n\t\t-- Goethebund\n"),
]
INDENTED = "      Drei  Dinge:\n            Sonne, \n\t    Mond.\n\nUnd Sterne.\n\t\t-- Goethe\n"
ENTRIES = [
    *((f"\nZwei Zeilen,\neine Meinung.\n\t\t{words}\n", "Zwei Zeilen,\neine Meinung.") for words in ATTRIBUTIONS),
    *((entry, None) for entry in LEFT_OUT),
    (INDENTED, "Drei Dinge:\n  Sonne,\n  Mond.\n\nUnd Sterne."),
]


@pytest.mark.parametrize(("entry", "words"), ENTRIES)
def test_the_words_of_a_quotation_without_its_attribution(entry, words):
    assert words_of(GOETHE, entry) == words


def test_overlapping_texts_lose_the_shorter_one():
    long = "Wer den Berg besteigt, der sieht das Tal mit neuen Augen."
    part = "Wer den Berg besteigt, der sieht das Tal."
    respelt = "WER DEN BERG BESTEIGT - DER SIEHT DAS TAL, MIT NEUEN AUGEN"
    other = "Das Tal bleibt, wo es ist, auch bei Nebel."
    assert cleaning.without_overlaps([part, other, respelt, long], known="") == [respelt, other]
    assert cleaning.without_overlaps([part, other], known=long) == [other]
    old, new = "Ich weiß, daß es so ist.", "Ich weiss, dass es so ist."
    assert cleaning.without_overlaps([old, new], known="") == [new]


def test_goethe_holds_letters_in_order_among_the_quotations_once_each():
    text = goethe_text(PHP, FORTUNES)
    first, second, third = (text.index(f"Ein {nth} Brief") for nth in ("erster", "zweiter", "dritter"))
    assert first < second < third
    # A quoted block of PHP has no escapes; text of two lines keeps them.
    for wanted in ("Am 4. Mai 1771\n\nEin erster", "$5 \\n nicht.", "\n\nMorgens baut der Maurer\n  seine Mauer.\n"):
        assert wanted in f"\n\n{text}"
    for unwanted in ("--", "Niemand", "Goethe", "Ohne Namen", "class", "EOT", "%", "\n\n\n", "legal"):
        assert unwanted not in text
    assert (text.count("Die Wolke zieht"), text[-1], text[-2] == "\n") == (1, "\n", False)
    # Neither the order of the sources nor the ends of their lines matter.
    odd = unicodedata.normalize("NFD", "%\n".join(reversed(FORTUNES.split("%\n")))).replace("\n", "\r\n")
    assert goethe_text("\ufeff" + PHP, odd) == text


def test_goethe_from_changed_packages_is_an_error():
    with pytest.raises(CorpusError, match="php-faker no longer holds Werther"):
        goethe_text("<?php $text = 'x';", FORTUNES)
    with pytest.raises(CorpusError, match="fortunes-de no longer holds"):
        goethe_text(PHP, "Ein Satz.\n\t\t-- Karl Niemand\n")
