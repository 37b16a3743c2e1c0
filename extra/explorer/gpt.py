"""Write the page of a GPT: its settings, weights and tokenizer as data, and the scripts that compute with them.

If the model is too large for a page to compute, the page has what it computed for one text instead.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from extra.explorer.page import assemble, blocks_formula, described, halves, panels_of
from extra.gpt.config import GPTConfig
from extra.inside.gpt import look_inside
from extra.pairs.answering import END, is_answering, prompt_ids, prompt_of, separator_of
from extra.pairs.made import CALCULATIONS, CHAT
from extra.plots.figure import write_or_refuse
from gpt.model import GPT
from seq2seq.model import Seq2Seq
from text.decoding.sample_options import SampleOptions
from text.tokenizers.base import Tokenizer
from tinygrad_lite import functional as F
from tinygrad_lite.errors import OptionError, counted
from tinygrad_lite.nn import Dropout, Embedding, LayerNorm, Linear, RMSNorm
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import Block, FeedForward, MultiHeadAttention
from training.checkpoint import load_checkpoint
from training.cli.console import say
from training.corpora.texts import RECIPES, load_corpus
from training.family import Trained
from training.folder import RunFolder

SCRIPTS = "model tokenizer sampling counting session talk ahead stage arcs text next cell attention stream wanted"
SCRIPTS = f"{SCRIPTS} patching surprise growing parts picture questions tour fragment main".split()
MAX_LIVE = 5_000_000  # parameters that a page computes with
MAX_CONTEXT = 128  # tokens that the page reads at once, so that a phone can keep up
MAX_CHECKPOINTS = 12  # of one run, in one page
MAX_NUMBERS = 20_000_000  # in all of them together: 40 MB as float16, 53 MB in base64
MAX_COUNTED = 2_000_000  # characters of the text that the page counts
ORDER = 6  # of the n-gram model
MAX_HALF = float(np.finfo(np.float16).max)  # 65,504
MAX_RECORDED = 64  # tokens of a text, if the page cannot compute with the model
EARLY = 5  # predictions kept for each layer and token of them
EXAMPLE = "Habe nun, ach! Philosophie,"
# What a model read if its text is one of these, which its hash says.
READ = {"goethe": "Goethe, in German", "shakespeare": "Shakespeare, in English"}
READ |= {"goethe-works": READ["goethe"], "plays": READ["shakespeare"]}

# The settings that model.js reads by name; those that it finds in the weights, or that do not matter without training.
PASSED_ON = "vocab_size n_layer n_head n_embd positions activation norm norm_eps norm_first residual qk_norm".split()
COMPUTED = {*PASSED_ON, *"block_size bias n_inner norm_weight rope_theta rope_scaling attention_scale".split()}
COMPUTED |= {*"n_kv_head head_dim tie_weights dropout zero_init recompute label_smoothing length_penalty".split()}
# The values that it computes, of those settings that are choices; the parts of its models, and its tokenizers.
CHOICES = {"positions": "learned sinusoidal rotary none", "norm": "layernorm rmsnorm"}
CHOICES |= {"activation": "gelu gelu_tanh relu relu2 swiglu linear"}
MODULES = {GPT, Seq2Seq, Block, Dropout, Embedding, FeedForward, LayerNorm, Linear, MultiHeadAttention, RMSNorm}
TOKENIZERS = ("char", "byte", "word", "bpe", "bpe-w")


def explain(options: SampleOptions, given: Mapping[str, Any], trained: Trained, model: GPT, prompt: str) -> None:
    """Write the page of a trained GPT to the file that --explain names.

    Raises: OptionError if the file cannot be written.
    """
    if beam := [f"--{name}" for name in ("beam", "n_best", "length_penalty") if name in given]:
        raise OptionError(f"{beam[0]} is for the page of a translation model: omit it")
    if why := why_recorded(trained, model, f"the first {MAX_RECORDED} tokens"):
        say(f"note: {why}")
    if "start" not in given and not trained.tokenizer.unknown(EXAMPLE):
        prompt = EXAMPLE
    html = page(options, trained, model, prompt, why)
    write_or_refuse(options.explain, html, "--explain ")
    say(f"wrote {options.explain} ({len(html) / 1e6:.1f} MB); open it in a browser")


def why_recorded(trained: Trained, model: GPT | Seq2Seq, shown: str) -> str:
    """Why a page cannot compute with this model, so that it has a recording of what is shown; empty if it can."""
    config, numbers = trained.config, sum(array.size for array in trained.weights.values())
    others = [n for n, field in config.chosen().items() if n not in COMPUTED and getattr(config, n) != field.default]
    others += [f"{n} {getattr(config, n)}" for n in CHOICES if getattr(config, n) not in CHOICES[n].split()]
    others += [type(part).__name__ for _, part in model.named_modules() if type(part) not in MODULES]
    largest = max((float(np.abs(array).max(initial=0)) for array in trained.weights.values()), default=0.0)
    recording = f"shows a recording of {shown}"
    if numbers > MAX_LIVE:
        more = f"more than the {MAX_LIVE:,} that a page computes with"
        return f"this model has {counted(numbers, 'parameter')}, {more}, so the page {recording}"
    if trained.tokenizer.kind not in TOKENIZERS:
        return f"the page lacks this model's tokenizer, so it {recording}"
    if trained.documents:
        return f"the page puts no mark before a document, as this model learned it, so it {recording}"
    if trained.composed:  # perhaps with a definition that someone changed
        why = "this model was trained with the reference versions of all operations (--composed)"
        return f"{why}, and the page has its own formulas, so it {recording}"
    if others:
        return f"the page does not compute {others[0]}, so it {recording}"
    return f"a weight of {largest:g} is too large for float16, so the page {recording}" if largest > MAX_HALF else ""


def page(options: SampleOptions, trained: Trained, model: GPT, prompt: str, why: str) -> str:
    """The page as HTML.

    Args:
        why: why the page cannot compute, so that the model is recorded; see `why_recorded`.
    """
    config, tokenizer = trained.config, trained.tokenizer
    answers, temperature = is_answering(trained), 0.0 if options.greedy else options.temperature
    data: dict[str, Any] = {
        "config": settings(config),
        "context": min(config.block_size, MAX_CONTEXT),
        "specials": list(tokenizer.specials),
        "textless": list(tokenizer.textless),
        "sampling": {"temperature": temperature, "topK": options.top_k, "topP": options.top_p, "minP": options.min_p},
        "compare": compared(options, trained),
    }
    ids = prompt_ids(tokenizer, prompt, config.block_size) if answers else prompt_of(trained, prompt)
    panels = panels_of("gpt", "recorded" if why else "conversation" if answers else "")
    panels["stream"]["formula"] = stream_formula(config)
    about = f"This is your model: {described(trained).replace('gpt with', 'a GPT with', 1)}."
    read = {recipe.expected: READ.get(name) for name, recipe in RECIPES.items()}.get(trained.corpus_sha256)
    title = f"A GPT that read {read}" if read else "Inside your GPT"
    if why:
        data["recording"], blobs = record(model, tokenizer, ids)
        for name in ("wanted", "patching", "growing"):  # which compute with the weights
            del panels[name]
        intro = [f"{why[0].upper()}{why[1:]}.", about]
    else:
        steps, run = zip(*checkpoints_of(trained), strict=True)
        model_data, blobs = computing(trained, run)
        data |= model_data | {"prompt": prompt, "checkpoints": steps}
        data["selected"] = next(i for i, weights in enumerate(run) if weights is trained.weights)
        title += f", for {counted(steps[data['selected']], 'step')}" if read and not trained.adapter else ""
        reads = f"It reads up to {config.block_size} tokens, and on this page the last {data['context']}."
        intro = ["It runs here, in this file: type, and press Enter.", f"{about} {reads}"]
        if len(run) < 2:
            del panels["growing"]
        if answers:
            data["talk"] = talk(trained, ids, data["context"])
            data["textless"].remove(tokenizer.specials[END])
            if trained.dataset != CHAT:
                intro.append("The model has learned no conversations, so it answers each message by itself.")
            if trained.dataset == CALCULATIONS:
                intro.append("No calculator runs on the page: what follows </calc> is the model's own guess.")
    data["panels"] = [*panels]
    return assemble(title, intro, panels, data, blobs, SCRIPTS)


def computing(trained: Trained, run: Sequence[Mapping[str, np.ndarray]]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What a page needs to compute with a model: JSON values, and the weights of some of its checkpoints as float16."""
    tensors = [[name, list(array.shape)] for name, array in trained.weights.items()]
    blobs = {f"weights-{i}": halves(*(weights[name] for name, _ in tensors)) for i, weights in enumerate(run)}
    return {"tokenizer": trained.tokenizer.to_json(), "tensors": tensors}, blobs


def stream_formula(config: GPTConfig) -> str:
    """The formula of the stream, that of this model's blocks."""
    read, added = "norm(x)" if config.norm_first else "x", "x + " if config.residual else ""
    return f"{blocks_formula(config.norm_first, added)};   read early: softmax({read} W)"


def talk(trained: Trained, ids: list[int], context: int) -> dict[str, Any]:
    """The first turn, the tokens between turns, and how many tokens turns may have.

    As with --chat, an answer has room for the default of --max_new_tokens, or for half of the context. A model that
    learned no conversations remembers no earlier turns.
    """
    most, specials = SampleOptions.max_new_tokens, trained.tokenizer.specials
    room = context - min(most, context // 2) if trained.dataset == CHAT else 0
    return {"ids": ids, "marks": [specials[separator_of(trained.tokenizer)], specials[END]], "room": room, "most": most}


def settings(config: Any) -> dict[str, Any]:
    """The settings that model.js reads, with every None resolved."""
    return {name: getattr(config, name) for name in PASSED_ON} | {
        "n_kv_head": config.n_kv_head or config.n_head,
        "head_dim": config.head_width,
        "scale": config.head_width**-0.5 if config.attention_scale is None else config.attention_scale,
        "frequencies": config.frequencies if config.positions == "rotary" else [],
    }


def record(model: GPT, tokenizer: Tokenizer, ids: list[int]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A recording of the first tokens of a text: JSON values, and arrays as float16.

    Returns: the JSON has ids (T,), pieces (V,), stream (L + 1, T), added (L, 2, T) and early (L + 1, T, 5); the arrays
        are recorded-logits (T, V), as log-probabilities, and recorded-attention (L, H, T, T).
    """
    ids = ids[: min(MAX_RECORDED, model.config.block_size)]
    found = look_inside(model, ids)
    log_probs = F.log_softmax(Tensor(found.logits.astype(np.float64))).numpy()
    recording = {
        "ids": ids,
        # The bytes of each token as characters of code points 0 to 255.
        "pieces": [tokenizer.token_bytes(token).decode("latin-1") for token in range(tokenizer.vocab_size)],
        "stream": rounded(np.linalg.norm(found.stream, axis=-1)),
        "added": rounded(np.linalg.norm(found.added, axis=-1)),
        "early": [[best(row) for row in layer] for layer in log_probs],
    }
    arrays = {"logits": np.maximum(log_probs[-1], -MAX_HALF), "attention": found.attention}
    return recording, {f"recorded-{name}": halves(array) for name, array in arrays.items()}


def best(log_probs: np.ndarray) -> list[tuple[int, float]]:
    """The most probable tokens with their probabilities."""
    return [(int(n), float(np.exp(log_probs[n]))) for n in np.argsort(-log_probs, kind="stable")[:EARLY]]


def rounded(array: np.ndarray) -> list:
    """The numbers with six digits, which are enough to draw them."""
    return [rounded(part) for part in array] if array.ndim else float(f"{array:.6g}")


def checkpoints_of(trained: Trained) -> list[tuple[int, dict[str, np.ndarray]]]:
    """The step and weights of this checkpoint and of those that its run kept with it, oldest first.

    If there are more than a page can hold, some are left out, evenly over the run.
    """
    if trained.adapter or trained.path.suffix != ".safetensors":
        return [(0, trained.weights)]
    own = load_checkpoint(trained.path)
    kept = map(load_checkpoint, RunFolder(trained.path.parent).kept())
    run = [one for one in kept if (one.model, one.tokenizer) == (own.model, own.tokenizer) and one.step != own.step]
    size = max(1, sum(array.size for array in trained.weights.values()))
    room = max(0, min(MAX_CHECKPOINTS, MAX_NUMBERS // size) - 1)
    if len(run) > room:
        say(f"note: of {counted(len(run), 'kept checkpoint')}, the page holds {room}")
        run = [run[i] for i in np.linspace(0, len(run) - 1, room).round().astype(int)]
    return sorted([*((one.step, one.weights) for one in run), (own.step, trained.weights)], key=lambda one: one[0])


def compared(options: SampleOptions, trained: Trained) -> dict[str, Any] | None:
    """The text whose n-grams the page counts: the training part of the one that --compare names.

    Raises: OptionError if there is no such text.
    """
    if not options.compare:
        return None
    if options.compare not in RECIPES and not Path(options.compare).exists():
        raise OptionError(f"--compare {options.compare}: name an existing file, or one of {', '.join(RECIPES)}")
    corpus = load_corpus(options.compare)
    text, _ = corpus.split()
    if len(text) > MAX_COUNTED:
        say(f"note: the page counts the first {MAX_COUNTED:,} of {counted(len(text), 'character')} of {corpus.name}")
    return {
        "name": corpus.name,
        "isOwn": corpus.sha256 == trained.corpus_sha256,
        "text": text[:MAX_COUNTED],
        "order": ORDER,
        "vocabSize": len(set(corpus.text)),
    }
