"""The settings of the translation model, which may also be Luong's model of recurrent layers."""

from dataclasses import dataclass
from typing import ClassVar

from seq2seq import config as core
from seq2seq.config import of_model

# Settings that only one kind of model has: the Transformer, and the model of recurrent layers.
TRANSFORMERS = "norm_first activation positions norm norm_weight norm_eps qk_norm attention_scale recompute n_inner"
RECURRENTS = "attend score attention_reach input_feeding"
FOR_NEAR = ("score", "attention_reach")  # what those decoders read that look near a place


@dataclass(frozen=True)
class Seq2SeqConfig(core.Seq2SeqConfig):
    """The settings of an encoder-decoder."""

    mixer: str = of_model(
        "attention", "the Transformer, or Luong's model of recurrent layers", choices=("attention", "rnn", "lstm")
    )
    attend: str = of_model(
        "global",
        "where recurrent decoders look: nowhere, at the whole source, near the same place, or near one they predict",
        choices=("none", "global", "monotonic", "predictive"),
    )
    score: str = of_model("general", "how they compare states with the source", choices=("dot", "general", "additive"))
    attention_reach: int = of_model(10, "D, how far they look from that place", unit="tokens", low=1, high=1_000_000)
    input_feeding: bool = of_model(False, "whether they read what they found at the last step")

    READERS: ClassVar = {"attend": {"global": ("score",)} | dict.fromkeys(("monotonic", "predictive"), FOR_NEAR)}

    def misfit(self, mark: str = "") -> str:
        """Which settings contradict each other, in words; empty if none do."""
        others = TRANSFORMERS if self.is_recurrent else RECURRENTS
        if foreign := [name for name in others.split() if getattr(self, name) != self.chosen()[name].default]:
            has = "the Transformer" if self.is_recurrent else "models of recurrent layers"
            return f"{mark}{foreign[0]} is a setting of {has}, not of {mark}mixer {self.mixer}"
        if self.input_feeding and self.attend == "none":
            return f"{mark}input_feeding feeds what attention found, and {mark}attend none finds nothing"
        return super().misfit(mark)

    def activations(self, batch_tokens: int) -> int:
        """An estimate of the numbers that a training micro-step keeps for its backward pass."""
        if not self.is_recurrent:
            return super().activations(batch_tokens)
        kept = self.n_layer * 2 * self.kept_attention + 6 * self.n_embd + self.vocab_size
        return batch_tokens // 2 * kept
