"""Which letter of the source does each letter of a translation attend to? The cross-attention of a trained model.

    python docs/course/11-translation/alignment.py out/reverse transformer

The first argument is the folder of a run, the second what to translate.
"""

from pathlib import Path

import numpy as np

from extra.families import SEQ2SEQ
from extra.inside import Attention
from extra.inside.seq2seq import attention_weights
from extra.studies.program import NoOptions, program
from seq2seq.translate import translate
from training.cli.console import run_command


def grid(found: Attention, layer: int = 0, head: int = 0) -> str:
    """A row for each target token, in which # marks the source token with the largest weight, given in percent."""
    weights = found.weights[layer, head]
    lines = ["       " + " ".join(found.keys)]
    for token, row in zip(found.queries, weights, strict=True):
        marks = " ".join("#" if place else "." for place in np.arange(len(row)) == row.argmax())
        lines.append(f"{token:>5}  {marks}  {row.max():4.0%}")
    return "\n".join(lines)


@program("docs/course/11-translation/alignment.py", NoOptions, "RUN SENTENCE", "out/reverse pensfxdbry")
def main(_: NoOptions, run: str, sentence: str) -> None:
    """Translate a sentence with a trained model, and print the attention of the first head of the first layer."""
    trained = SEQ2SEQ.read(Path(run))
    model = trained.make_model()
    best = translate(model, trained.tokenizer, [sentence])[0][0]
    print(grid(attention_weights(model, trained.tokenizer, sentence, best.tokens)))


if __name__ == "__main__":
    run_command("alignment", main)
