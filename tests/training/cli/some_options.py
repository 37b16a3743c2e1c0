"""Options of every kind, for the tests of declarations and of the command line."""

from dataclasses import dataclass

from tinygrad_lite.config import option


@dataclass
class Options:
    max_iters: int = option(2000, "updates to make", unit="steps", low=0, group="training")
    batch_size: int = option(12, "how many at once", unit="sequences per micro-step", low=1, high=4096)
    temperature: float = option(0.8, "flatness of the distribution", low=0.0, group="sampling")
    top_p: float = option(1.0, "mass to draw from", above=0.0, high=1.0, group="sampling")
    beta2: float = option(0.99, "decay of an average", low=0.0, below=1.0, group="training")
    bias: bool = option(False, "have one, as well-known-first-papers", group="model")
    compile_cache: bool = option(True, "keep one", group="run")
    out_dir: str = option("", "where to; empty: out", group="run")
    device: str = option("cpu", "where to compute", choices=("cpu", "cuda", "auto"), group="run")
    init_from: str = option("scratch", "where to start", group="run")
    text: list[str] = option([], "files to read", is_path=True, group="run")
    decay_iters: int | None = option(None, "where it ends; none: at the end", unit="steps", low=1, group="training")
    cutoff: float | None = option(0.5, "where it is cut", group="training")
    name: str | None = option(None, "what to call it", group="run")
