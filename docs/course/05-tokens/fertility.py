"""How many tokens does a word take, and how many more does the same sentence take in another language?

    python docs/course/05-tokens/fertility.py           the German and English sentences of `everyday`

Byte pairs are learned from the German side, from the English side, and from both, and then cut the held-out sentences
of each language. Tokens per word are called a tokenizer's fertility; the tokens of one language divided by those of the
other for the same sentences, its parity.
"""

import sys
from pathlib import Path

from seq2seq.corpus import load_pairs
from seq2seq.options import Seq2SeqOptions
from text.tokenizers.bpe import BPETokenizer
from training.cli.console import run_command

VOCAB_SIZE = 2048


def main(argv: list[str]) -> int:
    """Print the table."""
    corpus = load_pairs(Seq2SeqOptions.of(dataset="everyday"))
    learned, held_out = ([*zip(*pairs, strict=True)] for pairs in (corpus.train, corpus.held_out))
    print("| learned from | tokens per word: German | English | German tokens per English token |\n|---|---|---|---|")
    for name, sides in (("German", learned[:1]), ("English", learned[1:]), ("both", learned)):
        tokenizer = BPETokenizer.train("\n".join(line for side in sides for line in side), VOCAB_SIZE)
        tokens = [sum(len(tokenizer.encode(line)) for line in side) for side in held_out]
        words = [sum(len(line.split()) for line in side) for side in held_out]
        print(f"| {name} | {tokens[0] / words[0]:.2f} | {tokens[1] / words[1]:.2f} | {tokens[0] / tokens[1]:.2f} |")
    return 0


if __name__ == "__main__":
    run_command(Path(sys.argv[0]).name, main, __doc__)
