"""The size of a run, and the error when memory runs out."""

import errno
import re
from typing import NamedTuple

from tinygrad_lite.adapt import counts
from tinygrad_lite.config import ModelConfig
from tinygrad_lite.device import get_device
from tinygrad_lite.errors import TooLittleMemory
from tinygrad_lite.nn import Module
from training.family import Trained
from training.options import OPTIMIZERS
from training.setup import RunSetup

FULL = re.compile("ALLOC_FAILED|OUT_OF_MEMORY|cudaErrorMemoryAllocation")  # messages of CUDA's libraries
# Messages of CuPy and NumPy: "allocating 2,000,000,000 bytes", "allocate 4.0 GiB".
ASKED_FOR = re.compile(r"allocating ([\d,]+) bytes|allocate ([\d.]+) (bytes|[KMGTPE]iB)")


class Size(NamedTuple):
    """The size of a training run.

    Attributes:
        model: the model with shapes only.
        weights: bytes of all of them.
        kept: bytes in use from beginning to end, and their purpose.
        activations: estimate of the bytes that a micro-step keeps for its backward pass.
    """

    model: Module
    weights: int
    kept: tuple[int, str]
    activations: int


def size_of(setup: RunSetup) -> Size:
    """The size of a run according to its settings, and to its text once that has been read."""
    options = setup.options
    known = setup.vocab_size or (setup.tokenizer.vocab_size if setup.tokenizer else 0)
    config = options.model_config(known or {"char": 100, "byte": 256}.get(options.tokenizer, options.vocab_size))
    model = setup.blueprint(config)
    (learned, parameters), bytes_each = counts(model), options.weight_dtype.itemsize
    moments, workers = len(OPTIMIZERS[options.optimizer].state_names), options.workers
    kept_moments = "one moment" if moments == 1 else "two moments"
    gradients = "gradients" if workers == 1 else f"gradients of {workers} workers"
    learns = "" if learned == parameters else " of what learns"
    copy = 2 * learned if options.dtype == "bfloat16" else 0  # bytes
    weights = model.num_parameters() * bytes_each + sum(tensor.data.nbytes for tensor in model.buffers())
    kept = weights + copy + (workers + moments) * learned * bytes_each
    what = f"weights, {gradients} and {kept_moments}{learns}{', and a bfloat16 copy of the weights' if copy else ''}"
    numbers = config.activations(getattr(options, options.FACTORS[0][0]))
    return Size(model, weights, (kept, what), numbers * (2 if options.dtype == "bfloat16" else bytes_each))


def cache_bytes(config: ModelConfig, bytes_each: int) -> int:
    """The memory for what all layers keep of a whole context, for one text: keys and values, or a state."""
    return config.n_layer * config.cached_numbers * bytes_each


# --- when memory runs out ---------------------------------------------------------------------------------------


def is_shortage(error: Exception) -> bool:
    """Whether an error means that memory ran out: a MemoryError, or one of the system, of cuBLAS or of the driver."""
    is_refusal = isinstance(error, OSError) and error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or is_refusal or bool(FULL.search(str(error)))


def too_little_to_train(setup: RunSetup, error: Exception) -> TooLittleMemory:
    """The error for a training run: the memory that it needs, and the options that reduce it."""
    options, size = setup.options, size_of(setup)
    is_new = setup.checkpoint is None and setup.trained is None
    batch = f"a smaller --{options.FACTORS[0][0]} (with more --gradient_accumulation_steps an update stays the same)"
    advice = {  # and whether it applies
        batch: True,
        "--recompute": not options.config.recompute,
        "a shorter --block_size": is_new and hasattr(options.config, "block_size"),
        "a smaller model (--n_layer, --n_embd)": is_new and hasattr(options.config, "n_layer"),
        "a smaller --n_embd": is_new and not hasattr(options.config, "n_layer"),
        "--dtype bfloat16": options.device == "cuda" and options.dtype != "bfloat16",
        "--workers 1": options.workers > 1,
        "the fused operations (without --composed)": options.composed,
    }
    (kept, what), last = size.kept, setup.folder.last
    needed = f"{what} take {amount(kept)}, the activations of a micro-step about {amount(size.activations)}"
    helps = " or ".join(words for words, applies in advice.items() if applies)
    saved = f"; {last} is intact: --resume continues from there" if last.exists() else ""
    return TooLittleMemory(f"{shortage(error, options.device)}; {needed}: use {helps}{saved}")


def too_little_to_sample(trained: Trained, device: str, beam: int, error: Exception) -> TooLittleMemory:
    """The error for sampling: the memory that it needs, and the options of sample.py that reduce it."""
    config, arrays = trained.config, list(trained.weights.values())
    weights = amount(sum(array.nbytes for array in arrays))
    cache = amount(cache_bytes(config, max((array.itemsize for array in arrays), default=4)))
    advice = ["a smaller --beam"] if beam else []
    advice += ["a shorter prompt", "--use_cache=False, which is slow"]
    advice += ["--device cpu"] if device == "cuda" else ["a smaller model"]
    needed = f"the weights take {weights}, keys and values up to {cache}{' for each hypothesis' if beam else ''}"
    return TooLittleMemory(f"{shortage(error, device)}; {needed}: use {' or '.join(advice)}")


def shortage(error: Exception, device: str) -> str:
    """The amount of memory that could not be allocated, and what the device has."""
    asked, room = ASKED_FOR.search(str(error)), get_device(device).memory()
    more = "more"
    if asked:
        more = amount(int(asked[1].replace(",", ""))) if asked[1] else f"{asked[2]} {asked[3]}"
    said = f"there is not enough memory on the {'GPU' if device == 'cuda' else 'computer'}: {more} was requested"
    return said + (f", {amount(room[0])} of its {amount(room[1])} is free" if room else "")


def amount(count: int) -> str:
    """A number of bytes in a suitable unit.

    >>> amount(300 << 20), amount(5 << 29)
    ('300 MiB', '2.5 GiB')
    """
    return f"{count / 2**20:,.0f} MiB" if count < 2**30 else f"{count / 2**30:,.1f} GiB"
