"""Learn from sentences that nobody has translated: translate them back (Sennrich, Haddow, Birch 2016).

    python docs/course/11-translation/back.py --dataset multi30k
    python docs/course/11-translation/back.py --pairs FILE.tsv --train_pairs 500 --loose 4000

There are few pairs, and many loose sentences of the target language. A model of the opposite direction learns from the
few pairs and translates the loose sentences into the source language. Its translations are bad, but their other sides
are real sentences: as pairs, they teach a model of the wanted direction what it should write. All models have the same
settings and steps, and learn from

    few        the few pairs alone
    network    these, and the loose sentences as a network has translated them back
    counting   these, and the loose sentences as a counted dictionary (counting.py) has translated them back
    true       these, and the loose sentences with their true translations: more cannot be hoped for

Everything is written to out/back: the pairs, which `train.py --pairs` reads, and the runs. What is printed are chrF and
BLEU of greedy translations of the held-out sentences, after the last step, for which sacrebleu is needed:
pip install -e ".[translate]". Reference: arXiv:1511.06709.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from counting import dictionary
from counting import translate as by_words

import train
from families import FAMILIES  # where the shelf is, it brings further pairs
from seq2seq.corpus import load_pairs
from seq2seq.translate import translate
from text.decoding.scores import scores
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError, UserError
from training.cli.command_line import read_command
from training.cli.console import run_command, show
from training.cli.options import not_among
from training.corpora.pair_cleaning import Pair
from training.folder import RunFolder

FOLDER = Path("out/back")
WAYS = ("few", "network", "counting", "true")
SETTINGS = "translate-de-en --n_layer 2 --n_embd 128 --attention_scale 0.375 --vocab_size 2000 --batch_tokens 1250"


@dataclass
class BackOptions:
    """What to learn from, and how long."""

    dataset: str = option("everyday", "the pairs, as in train.py")
    pairs: str = option("", "file to use instead: source TAB target in each line", is_path=True)
    train_pairs: int = option(1000, "pairs to learn from", low=1)
    loose: int = option(9000, "other pairs, of which only the target sides are known", low=1)
    ways: str = option(",".join(WAYS), "what to compare")
    max_iters: int = option(1200, "updates of each model", low=5)
    learning_rate: float = option(2e-3, "peak learning rate", above=0)
    seed: int = option(1, "draws the pairs and the weights")


def write(name: str, pairs: Sequence[Pair]) -> Path:
    """Write pairs to a file; returns its path."""
    path = FOLDER / f"{name}.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


def trained(name: str, pairs: Sequence[Pair], options: BackOptions, *more: str) -> tuple:
    """A model that has learned from these pairs, and its tokenizer."""
    steps, folder = options.max_iters, FOLDER / name
    words = f"--max_iters {steps} --warmup_iters {steps // 5} --eval_interval {steps} --learning_rate "
    words += f"{options.learning_rate} --eval_pairs 0 --seed {options.seed} --val_src {FOLDER}/val.src --val_tgt"
    words = [*SETTINGS.split(), "--workers", "1", "--overwrite", *words.split(), f"{FOLDER}/val.tgt", *more]
    if status := train.main([*words, "--pairs", str(write(name, pairs)), "--out_dir", str(folder)]):
        raise UserError(f"the training of {folder} ended with status {status}")
    found = FAMILIES["seq2seq"].read(RunFolder(folder).last)
    return found.make_model(), found.tokenizer


def translated(model: tuple, sentences: Sequence[str]) -> list[str]:
    """Greedy translations by a model with its tokenizer."""
    return [best.text for best, *_ in translate(*model, sentences)]


def main(argv: list[str]) -> int:
    """Translate loose sentences back, learn from them, and print the scores."""
    about = "Learn to translate from few pairs and many loose sentences."
    options, _ = read_command(BackOptions, argv, "python docs/course/11-translation/back.py", about)
    ways = options.ways.split(",")
    for way in ways:
        if way not in WAYS:
            raise OptionError(f"--ways: {not_among(way, WAYS)}")
    count = options.train_pairs
    named = {"dataset": options.dataset, "pairs": options.pairs, "seed": options.seed}
    corpus = load_pairs(FAMILIES["seq2seq"].options.of(train_pairs=count + options.loose, **named))
    few, others = corpus.train[:count], corpus.train[count:]
    loose, (sources, targets) = [target for _, target in others], zip(*corpus.held_out, strict=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, lines in (("src", sources), ("tgt", targets)):
        (FOLDER / f"val.{name}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    rows = {}
    for way in ways:
        more: list[Pair] = []
        if way == "network":
            back = translated(trained("opposite", few, options, "--swap"), loose)
            more = list(zip(back, loose, strict=True))
        elif way == "counting":
            words = dictionary([(target, source) for source, target in few], rounds=5)
            more = [(by_words(target, words), target) for target in loose]
        elif way == "true":
            more = others
        rows[way] = scores(translated(trained(way, few + more, options), sources), targets)[1]
        for source, target in more[:3]:
            show(f"  {target}\n  -> {source}")
        show(f"{way}: {rows[way]}")
    return 0


if __name__ == "__main__":
    run_command("back", main)
