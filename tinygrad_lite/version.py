"""The version of the project, and what has become of modules that have moved: importing an old name says it."""

import importlib.abc
import sys

VERSION = "0.3.0"

# The old name of a module or folder, and the new one, or that it was removed; the longest match counts.
MOVED = {
    **{f"tinygrad_lite.{name}": f"workshop.{name}" for name in "cli corpora decoding tokenizers".split()},
    "tinygrad_lite.cli.errors": "tinygrad_lite.errors",
    "tinygrad_lite.corpora.minilm": "encoder.minilm",
    "tinygrad_lite.cuda.precision": "tinygrad_lite.precision",
    "tinygrad_lite.explorer": "studies.explorer",
    "tinygrad_lite.tokenizers.compare": "studies.compare_tokenizers",
    "tinygrad_lite.tokenizers.coverage": "removed (commit 0fc9c3b has it as studies/coverage.py)",
    "tinygrad_lite.training": "workshop.run",
    "tinygrad_lite.training.adapters": "workshop.adapters",
    "tinygrad_lite.training.costs": "studies.costs",
    **{f"tinygrad_lite.training.{name}": f"workshop.formats.{name}" for name in ("export", "layout", "pretrained")},
    **{f"tinygrad_lite.training.{n}": f"workshop.processes.{n}" for n in ("mpi", "mpirun", "processes", "workers")},
    "tinygrad_lite.training.model_spec": "workshop.run.family",
    "tinygrad_lite.viz": "studies.pictures",
    "tinygrad_lite.viz.expression": "studies.pictures.graphviz",
    "tinygrad_lite.viz.figure": "workshop.figure",
    **{f"gpt.{n}": f"studies.{n}" for n in "baselines damage draw quantized update".split()},
    "gpt.answers": "studies.scores",
    "gpt.few_shot": "removed (commit 0fc9c3b has it as studies/few_shot.py)",
    "gpt.explorer": "studies.explorer",
    "gpt.explorer.build": "studies.explorer.gpt",
    **{f"gpt.fast_{name}": f"gpt.fast.{name}" for name in ("step", "step_cuda", "weights")},
    **{f"gpt.{name}_layout": f"gpt.formats.{name}" for name in ("gpt2", "llama", "peft")},
    "gpt.gguf_file": "gpt.formats.gguf_file",
    "gpt.sample_options": "workshop.decoding.sample_options",
    "seq2seq.draw": "studies.draw",
    "seq2seq.evaluate": "studies.scores",
    "seq2seq.explorer": "studies.explorer.translation",
    **{f"encoder.{name}_layout": f"encoder.formats.{name}" for name in ("bert", "vit")},
    "encoder.compare": "benchmarks.compare_encoders",
    "encoder.evaluate": "studies.accuracy",
    "encoder.explorer": "studies.explorer.encoders",
    "encoder.inside": "workshop.inside",
}


class Moved(importlib.abc.MetaPathFinder):
    """Asked last, for modules that are found nowhere else."""

    def find_spec(self, name: str, *_: object) -> None:
        """Raise ModuleNotFoundError with the new name of a module that has moved."""
        for old in sorted(MOVED, key=len, reverse=True):
            if f"{name}.".startswith(f"{old}."):
                parts = "".join(f"; {part} is {new}" for part, new in MOVED.items() if part.startswith(f"{name}."))
                raise ModuleNotFoundError(f"{name} is now {MOVED[old]}{name[len(old) :]}{parts}", name=name)


sys.meta_path.append(Moved())
