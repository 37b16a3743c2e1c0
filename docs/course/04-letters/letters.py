"""Goethe's "Erlkönig" (1782), as a text in which to count letters, and a small network that predicts them."""

from __future__ import annotations

import numpy as np

from tinygrad_lite import Tensor, nn

TRAIN = """\
Wer reitet so spät durch Nacht und Wind?
Es ist der Vater mit seinem Kind;
Er hat den Knaben wohl in dem Arm,
Er faßt ihn sicher, er hält ihn warm.

Mein Sohn, was birgst du so bang dein Gesicht?
Siehst, Vater, du den Erlkönig nicht?
Den Erlenkönig mit Kron und Schweif?
Mein Sohn, es ist ein Nebelstreif.

Du liebes Kind, komm, geh mit mir!
Gar schöne Spiele spiel ich mit dir;
Manch bunte Blumen sind an dem Strand,
Meine Mutter hat manch gülden Gewand.

Mein Vater, mein Vater, und hörest du nicht,
Was Erlenkönig mir leise verspricht?
Sei ruhig, bleibe ruhig, mein Kind;
In dürren Blättern säuselt der Wind.

Willst, feiner Knabe, du mit mir gehn?
Meine Töchter sollen dich warten schön;
Meine Töchter führen den nächtlichen Reihn
Und wiegen und tanzen und singen dich ein.

Mein Vater, mein Vater, und siehst du nicht dort
Erlkönigs Töchter am düstern Ort?
Mein Sohn, mein Sohn, ich seh es genau:
Es scheinen die alten Weiden so grau.
"""
HELD_OUT = """\

Ich liebe dich, mich reizt deine schöne Gestalt;
Und bist du nicht willig, so brauch ich Gewalt.
Mein Vater, mein Vater, jetzt faßt er mich an!
Erlkönig hat mir ein Leids getan!

Dem Vater grauset's, er reitet geschwind,
Er hält in Armen das ächzende Kind,
Erreicht den Hof mit Mühe und Not;
In seinen Armen das Kind war tot.
"""


def windows(ids: np.ndarray, size: int) -> tuple[Tensor, Tensor]:
    """Every place of a text as an example: the `size` ids before it (N, size), and the id that is there (N,)."""
    contexts = np.lib.stride_tricks.sliding_window_view(ids[:-1], size)
    return Tensor(contexts), Tensor(ids[size:])


class MLP(nn.Module):
    """Logits of the next letter from the `size` letters before it."""

    def __init__(self, vocab_size: int, size: int, n_embd: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, n_embd)
        self.hidden = nn.Linear(size * n_embd, hidden)
        self.output = nn.Linear(hidden, vocab_size)

    def forward(self, ids: Tensor) -> Tensor:
        """Ids (N, size) -> logits (N, V)."""
        vectors = self.embedding(ids)  # (N, size, C)
        joined = vectors.flatten(1)  # (N, size * C)
        return self.output(self.hidden(joined).tanh())
