"""What the scripts and studies cannot do: each mistake gives one sentence, and nothing is written."""

import shlex
from importlib import import_module
from pathlib import Path

import pytest

from docs.course import check
from extra.gpt.options import GPTOptions
from extra.pairs.answering import END
from extra.studies import SCRIPTS
from gpt.data import prepare
from tests.extra.explorer.test_encoders import saved_bert
from tests.extra.explorer.test_translation import saved_translator
from tests.gpt.saved_models import saved_gpt
from tests.gpt.test_refusals import assert_refused, each, rows_of
from tests.test_imports import ROOT
from tests.tiny_runs import made_up_text, undone
from text.tokenizers.base import UNKNOWN
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.char import CharTokenizer
from tinygrad_lite.errors import CheckpointError, CorpusError, OptionError, TokenizerError
from training.corpora.texts import load_corpus
from training.folder import RunFolder

PROGRAM = "--rewards needs questions of a program: --dataset sums or calculations, not"
OF_PAIRS = "belongs to the translation model: use python train.py translate-de-en"
LEARNS = "changes nothing without --rewards: omit it"
POINTS = ("--method dpo", "--group 4", "--beta 2.0", "--reference own")
ESTIMATES = "only for estimates of the cost: add --dry_run"
MISSING = "the checkpoint is missing: python"
MANY = "this text has 400 different characters, which with </w> and 1 special token make 402"
CONSTANT, RATES = "decay_lr false", ("--warmup_iters", "--lr_decay_iters")
PICTURES = {name: f"docs/extra/{name}.py" for name in ("merges", "tokens")}
PICTURES["recall"] = "docs/course/21-beyond/recall.py"
GPT, BERT, SEQ = (f"sample {name} --explain p.html" for name in ("run", "bert", "seq"))
LONG, LETTERS = "a" * 1001, "a " * 50
ALONE = {"data_order": "epochs", "eval_iters": 3, "replay": "goethe", "teachers": "own"}
NOT_OF_DOCUMENTS = "changes nothing with --documents line: omit it"
TUNE = "train --init_from own --text text.txt"
REWARDS = "train rewards --init_from digits --rewards length --batch_size 16 --group 4"
MODULES = {"train": "train", "sample": "sample"}


CASES = {
    OptionError: [
        ("train --epochs 3", "--epochs is counted in steps here: --max_iters is the epochs times the steps of one"),
        ("train reverse --mixer lstm --positions rotary", "--positions is a setting of the Transformer, not of"),
        ("train reverse --attend none", "--attend is a setting of models of recurrent layers, not of --mixer"),
        ("train reverse --mixer lstm --attend none --input_feeding", "--input_feeding feeds what attention found, and"),
        *each("train {}", f"{{}} {OF_PAIRS} {{}}", "--pairs a.tsv", "--dataset libreoffice-help"),
        ("train --separator <to>", "--separator <to> separates the sides of pairs: add --pairs FILE.tsv"),
        ("train --separator <to> --pairs a --text b", "--pairs and --text cannot be combined"),
        ("train --separator <end> --pairs a", "--separator <end> already has a meaning"),
        ("train bert-goethe --dataset digits", "--dataset digits belongs to the Vision Transformer"),
        *each("train igpt-digits {}", "belong together", "--dataset goethe", "--dataset mnist-5k --tokenizer char"),
        ("train chat --init_from talks --separator <o>", "tokenizer of these weights has no special token <o>"),
        ("train sums --rewards right", "sometimes right"),
        *((f"train sums {typed}", f"{typed.split()[0]} {LEARNS}") for typed in POINTS),
        (f"{REWARDS} --group 5", "--batch_size 16, the number of answers here, is not a multiple of --group 5"),
        *each(f"{REWARDS} {{}}", f"{PROGRAM} {{}}", "--dataset chat", "--pairs a.tsv"),
        *((f"train names --{name} {value}", f"--{name} {NOT_OF_DOCUMENTS}") for name, value in ALONE.items()),
        ("train --init_from talks --text text.txt --documents line", "these weights has no special token <|endoftext"),
        (f"{REWARDS} --method dpo", "add --reference"),
        ("train --text text.txt --tokenizer char --teachers own", "own: it reads 8 tokens at once: use --block_size 8"),
        ("train --dataset digits --tokenizer pixels --teachers own", "GPTs of the same text, but this run learns"),
        ("train --text text.txt --teachers own --teachers_share 0", "--teachers_share 0"),
        *each("train --{}_share 0.5", "--{}_share changes nothing without --{}: omit it", "teachers", "replay"),
        ("train --lora_rank 2", "--lora_rank is for weights that are trained already: add --init_from BASE"),
        (f"{TUNE} --lora_rank 99", "--lora_rank 99: rank 99 is above 8, the smaller side of blocks.0.mixer.query"),
        (f"{TUNE} --lora_rank 2 --freeze '*'", "--lora_rank freezes all weights of --init_from already: omit --freeze"),
        (f"{TUNE} --freeze base", "--freeze base leaves nothing to learn"),
        (f"{TUNE} --freeze nothing", "--freeze nothing: nothing to freeze is called nothing"),
        (f"{TUNE} --lora_alpha 2", "--lora_alpha changes nothing without a rank: add --lora_rank"),
        (f"{TUNE} --quantize nf4", "--quantize nf4: quantized weights cannot learn, only changes"),
        (f"{TUNE} --lora_rank 2 --lora_targets querry", "no linear map is called querry: there are query, key, value"),
        *each("train {}", ESTIMATES, "gpt3", "--watts 10", "goethe-char --flops_per_second 1e12"),
        ("train gpt3 --dry_run --text my.txt", "--text changes nothing in the cost of gpt3, which reads no text"),
        *each(f"train --text text.txt --{CONSTANT} {{}} 9", f"{{}} changes nothing with --{CONSTANT}: omit it", *RATES),
        ("baselines --text text.txt --orders x", "--orders x"),
        ("damage", f"{MISSING} docs/course/15-inside/damage.py out/goethe"),
        *each("damage out/goethe --shares {}", "--shares {}: write numbers above 0 and at most 1", "0.5,1.5", "half"),
        *each("draw attention {}", "give the model something to read: --text", "run", "seq"),
        (f"draw attention run --text {LONG[:17]}", "--text has 17 tokens, but the model reads at most 16"),
        *each("draw attention run --text ab {}", "{}: the model has 2, counted from 1", "--layer 3", "--head 3"),
        (f"draw attention seq --text {LONG[:100]}", "--text has 100 tokens, but the model reads at most 40"),
        ("draw neighbours run --tokens ab", "--tokens ab: this is not one token of the vocabulary"),
        *each(f"{{}} {LONG}", "1,001 characters: at most 1000", "tokens run --text", "merges"),
        ("draw loss one two", "metrics.csv: bits per character need an evaluation; use --unit nats"),
        *each("longer none --times {}", "--times {}: write whole numbers from 1 on", "0", "1.5"),
        *each("scores seq --compare {} --pairs gone", "--compare {}: write numbers from 0 to 10", "0,x", "11"),
        ("scores seq --compare 1 --beam 1 --pairs gone", "cannot be combined with --beam 1"),
        ("accuracy bert", "predicts words, not labels"),
        ("together own --text text.txt --rates fast", "--rates fast: write learning rates such as 0.02,0.05"),
        ("together own --text text.txt --orders 1-2 --stride 9", "--stride 9: the windows of this model have 8"),
        ("sample run --interactive --num_samples 2", "--interactive cannot be combined with --num_samples"),
        ("sample digits --keep_rows 3", "--keep_rows changes nothing without --image: omit it"),
        ("sample seq --interactive --start a", "--start changes nothing with --interactive, which reads what is typed"),
        ("sample run --compare goethe", "--compare changes nothing without --explain: omit it"),
        (f"{GPT} --max_new_tokens 3", "--explain cannot be combined with --max_new_tokens"),
        (f"{GPT} --beam 3", "--beam is for the page of a translation"),
        ("sample run --explain no/folder/p.html", "--explain no/folder/p.html cannot be written"),
        ("sample talks --start zwei --interactive", "--interactive is for models that continue a text"),
        ("sample bert --start 'Es irrt'", "there is no [MASK]"),
        ("sample bert --start 'Es [MASK]' --temperature 1", "--temperature is for models that write"),
        (f"{BERT} --start 'a\nb'", "--explain needs exactly one line of text; lines given: 2"),
        (f"{BERT} --start '{LETTERS}'", "the page shows at most 40 tokens of this model, and"),
        *each(f"{BERT} --start a {{}} 2", "{} is for models that write", "--beam", "--compare"),
        *each("{} no/p.html", "no/p.html cannot be written", "learn", "sample bert --start 'a [MASK]' --explain"),
        *each("sample seq --start {} --attention a.svg", "needs exactly one line", "'a\nb'", "''"),
        *each("sample seq --start a --temperature 1 --{} a.svg", "so omit --temperature", "attention", "explain"),
        (f"{SEQ} --start 'a\nb'", "needs exactly one line, with a sentence; lines given: 2"),
        (f"{SEQ} --start a --beam 17", "a tree of at most 16 hypotheses"),
        *each("recall --distances {}", "--distances {}: write whole numbers of at least 8, twice the pairs", "4", "x"),
    ],
    CorpusError: [
        ("train --separator <to> --pairs short.txt", "short.txt, line 1: expected source TAB target"),
        (f"{REWARDS} --method dpo --reference no", "--reference no: there is no"),
        ("train --text text.txt --teachers gone", "--teachers gone: there is no such file"),
        *each("{} gone", "there is no file gone", "scores seq --pairs", "baselines --text"),
        ("train bert-goethe --text short.txt --vocab_size 262", "the text is too short"),
        ("baselines --text short.txt", "too short: of its 4 characters 0 are held out"),
        ("longer none --text text.txt --characters 60 --times 9", "to predict, but a window of 9 T has 72"),
        ("together short --text two.txt", "the text is too short: 2 tokens held out, and it takes three"),
        ("learn --text long.txt", "long.txt is too long: 1,000,002, and the limit of this page is 1,000,000"),
        *each("learn --text {}", "{}", "binary.txt", "own.txt"),
    ],
    CheckpointError: [
        (f"{REWARDS} --method dpo --reference odd", "has different tokens"),
        ("train --text chinese.txt --teachers own", "--teachers own: it learned from a different text from"),
        ("train --text text.txt --tokenizer byte --teachers own", "own: it has different tokens: give both runs"),
        ("sample a.gguf", "a.gguf is a GGUF file: make"),
        ("sample own --adapter own", "is a whole model, not an adapter: name it alone"),
        ("scores own", "continues texts; this measures models that learned from pairs"),
        ("baselines --text text.txt --checkpoint run", "last.safetensors did not learn from text.txt"),
        *each("{} alien --text text.txt", "alien did not learn from text.txt", "baselines --checkpoint", "together"),
        *each("{} nowhere --text a", "there is no checkpoint nowhere", "draw attention", "tokens"),
        ("together odd own --text text.txt", "own has different tokens from odd"),
        ("update own own --text text.txt", "is the same in both models"),
        ("update own wider --text text.txt", "is not the same matrix in both"),
    ],
    TokenizerError: [("compare_tokenizers many.txt --vocab_size 300", MANY)],
}


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory):
    """Texts, checkpoints of GPTs with random weights, and two runs without an evaluation."""
    texts = {"text.txt": made_up_text(), "short.txt": "Nun!", "two.txt": "Habe nun, ach! Da"}
    chinese = "".join(map(chr, range(0x4E00, 0x4E00 + 700)))
    texts |= {"many.txt": chinese[:400] + "中" * 50, "chinese.txt": chinese, "long.txt": "ab" * 500_001}
    with pytest.MonkeyPatch.context() as patch, undone():
        patch.chdir(tmp_path_factory.mktemp("place"))
        for name, text in texts.items():
            Path(name).write_text(text, encoding="utf-8")
        Path("empty").mkdir()
        Path("binary.txt").write_bytes(b"\xff\xfe\x00 no text" * 99)
        data = prepare(GPTOptions.of(text=["text.txt"]))
        known, small = {"corpus_sha256": data.corpus.sha256}, {"n_layer": 1, "n_embd": 8, "block_size": 8}
        saved_gpt(Path("own"), data.tokenizer, **known, **small)
        saved_gpt(Path("odd"), ByteTokenizer(), **known, **small)
        saved_gpt(Path("alien"), data.tokenizer, **small)
        saved_gpt(Path("none"), data.tokenizer, positions="none", **small)
        saved_gpt(Path("wider"), data.tokenizer, n_layer=1)
        saved_gpt(Path("run/last.safetensors"), data.tokenizer)
        saved_gpt(Path("short"), data.tokenizer, corpus_sha256=load_corpus("", files=["two.txt"]).sha256, **small)
        saved_gpt(Path("talks"), ByteTokenizer(("<answer>", END)), **small)
        saved_gpt(Path("digits"), CharTokenizer.train("0123456789+*<>/calc", specials=(UNKNOWN, "<answer>", END)))
        saved_bert("bert")
        saved_translator(Path("seq"))
        for run in map(RunFolder, ("one", "two")):
            with run.locked():
                run.begin({})
            run.log(step=1, loss=5.0, learning_rate=1e-3, grad_norm=1.0, tokens_per_second=10.0)
        yield sorted(Path().rglob("*"))


@pytest.mark.parametrize(("error", "line", "sentence"), rows_of(CASES))
def test_a_mistake_gives_one_sentence_and_writes_nothing(place, error, line, sentence):
    command, *words = shlex.split(line)
    if script := (SCRIPTS | PICTURES).get(command):
        main = check.load(ROOT / script).main
    else:
        main = import_module(MODULES.get(command, f"extra.studies.{command}")).main
    assert_refused(main, words, error, sentence, place)
