"""The pairs of sentences that a run of the translation model learns from, and those that it holds out.

The pairs come from a named corpus (training/corpora/pairs.py), from files, or from a toy task. The
sentences in TEST_FILES were written for testing translations: no run on a named corpus sees them.
"""

from pathlib import Path

from seq2seq.options import Seq2SeqOptions
from seq2seq.toys import TOYS, toy_pairs
from training.corpora.divided_pairs import PairCorpus, divide, read_table, read_two
from training.corpora.pairs import load_parallel

TEST_FILES = [Path(__file__).with_name(f"{name}_sentences.tsv") for name in ("simple", "hundred")]


def load_pairs(options: Seq2SeqOptions) -> PairCorpus:
    """The pairs that the options name, in the direction that they name.

    Raises: CorpusError if a file cannot be read, if its two sides differ in length, or if there are too few pairs;
        OptionError if there are fewer than --train_pairs.
    """
    settings = {"count": options.held_out, "swap": options.swap}
    name = Path(options.pairs or options.src).name or options.dataset
    if options.pairs:
        pairs = read_table(Path(options.pairs))
    elif options.src:
        pairs = read_two(Path(options.src), Path(options.tgt))
    elif options.dataset in TOYS:
        pairs = toy_pairs(options.dataset, options.toy_size, options.seed)
    else:
        corpus = load_parallel(options.dataset)
        pairs = corpus.pairs
        settings |= {"words": corpus.words, "held_out": corpus.validation}
        settings["tests"] = [pair for path in TEST_FILES for pair in read_table(path)]
    if options.val_src:
        settings["held_out"] = read_two(Path(options.val_src), Path(options.val_tgt))
    return divide(name, pairs, **settings).reduced(options.train_pairs, options.seed)
