"""How the shelf starts runs: from weights of which only part learns, on several machines, or not at all.

python train.py --init_from gpt2/ --lora_rank 8     part of the model learns (adapters/)
mpirun -n 4 python train.py                         the processes are ranks (mpi/)
python train.py gpt3 --dry_run                      an estimate, or with --profile a look at a step (studies/trials.py)
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from extra.adapters.adapter import fingerprint
from extra.log import ShelfLog
from extra.mpi.mpirun import launched
from extra.plots.figure import check_folder
from extra.studies import trials
from extra.studies.sizes import SIZES
from tinygrad_lite.adapt import counts, learned, load_learned
from tinygrad_lite.config import ModelConfig
from tinygrad_lite.errors import CheckpointError, OptionError, counted
from tinygrad_lite.nn import Module, shapes_only
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.quantize import weight_bytes
from training.cli.console import quoted, say
from training.processes.processes import Job, OneProcess, Program
from training.setup import RunSetup
from training.task import Task


@dataclass
class ShelfSetup(RunSetup):
    """What a run starts with.

    Attributes:
        base: what a checkpoint says about `trained`, if only part of the model learns; else empty.
        freezable: the names of the weights that may be frozen, those of `trained`; None: any.
    """

    def __post_init__(self) -> None:
        self.base: dict[str, Any] = self.checkpoint.base if self.checkpoint else {}
        self.freezable = frozenset(self.trained.weights) if self.trained else None
        if self.trained and not self.checkpoint and self.options.adapts:
            place, sha256 = self.trained.path.as_posix(), fingerprint(self.trained.weights)
            self.base = {"path": place, "sha256": sha256, "alpha": self.options.lora_alpha}
            if self.options.quantize:
                self.base["quantize"] = self.options.quantize

    @property
    def size(self) -> str | None:
        """The name of the known model whose cost is asked for; None: a preset."""
        return self.named if self.named in SIZES and not (self.trained or self.checkpoint) else None

    # --- the model ----------------------------------------------------------------------------------------------

    def started(self, config: ModelConfig) -> Module:
        """A model of these settings, with the weights with which the run starts, of which part may be frozen."""
        model = super().started(config)
        self.options.adapt(model, self.freezable)
        if self.trained and self.checkpoint:
            try:
                load_learned(model, self.checkpoint.weights)
            except ValueError as error:
                raise CheckpointError(f"{self.folder.last}: {error}") from None
        return model

    def blueprint(self, config: ModelConfig) -> Module:
        """The same model with shapes only."""
        with shapes_only():
            model = self.family.model_of(config)(config)
            self.options.adapt(model, self.freezable)
        return model

    def describe(self, model: Module) -> str:
        """The size of the model for messages, and which part of it learns."""
        some, number = counts(model)
        if some == number:
            return counted(number, "parameter")
        size = f", with weights of {weight_bytes(model) / 1e6:,.1f} MB" if model.buffers() else ""
        return f"trains {some:,} of {counted(number, 'parameter')} ({100 * some / number:.2g} %){size}"

    def saved(self, task: Task, model: Module) -> dict[str, Any]:
        """What a checkpoint says of the model; of an adapter, only what learns: its base is needed, too."""
        if not self.base:
            return super().saved(task, model)
        tokenizer = {} if task.tokenizer is self.tokenizer else task.tokenizer.to_json()
        weights = {name: parameter.numpy() for name, parameter in learned(model).items()}
        return {"weights": weights, "tokenizer": tokenizer, "base": self.base}

    # --- before the run -----------------------------------------------------------------------------------------

    def check(self, given: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
        """Check the options, as for every run, and those of the shelf.

        Raises: UserError with one sentence.
        """
        options = self.options
        self.check_trial(given)
        if self.checkpoint and (options.adapts != bool(self.base) or options.quantize != self.base.get("quantize")):
            raise CheckpointError(f"{self.folder.last}: its settings and its base contradict each other")
        super().check(given, asked)
        if options.explain and self.family.unexplained:
            raise OptionError(f"--explain shows {self.family.unexplained}: omit it")
        if options.explain:
            check_folder(options.explain, "--explain")
        if options.quantize and options.device != "cpu":
            raise OptionError(f"--quantize {options.quantize} is for the CPU: add --device cpu, or omit --quantize")
        if options.exchange == "bfloat16" and options.dtype == "float64":
            raise OptionError("--exchange bfloat16 would waste the digits of --dtype float64: omit one of them")
        if options.exchange == "bfloat16" and launched()[1] == 1:
            say("note: --exchange bfloat16 changes nothing without mpirun")
        self.check_adapting(given)

    def check_trial(self, given: Mapping[str, Any]) -> None:
        """Raise OptionError for options of estimates without --dry_run, or a text that an estimate does not read."""
        if not self.options.dry_run and (self.size or {"watts", "flops_per_second"} & given.keys()):
            what = self.size or ("--watts" if "watts" in given else "--flops_per_second")
            raise OptionError(f"{what} is only for estimates of the cost: add --dry_run")
        if self.size and (files := [name for name in self.options.FILES if name in given]):
            raise OptionError(f"--{files[0]} changes nothing in the cost of {self.size}, which reads no text: omit it")

    def check_adapting(self, given: Mapping[str, Any]) -> None:
        """Check the options of freezing and of adapters, before any text is fetched.

        Raises: OptionError if they contradict each other, or do not fit the weights.
        """
        options, trained = self.options, self.trained
        if not options.lora_rank:
            advice = "add --lora_rank, such as --lora_rank 8"
            if idle := [name for name in ("lora_alpha", "lora_targets", "lora_dropout") if name in given]:
                raise OptionError(f"--{idle[0]} changes nothing without a rank: {advice}")
            if options.quantize:
                reason = "quantized weights cannot learn, only changes added to them can"
                raise OptionError(f"--quantize {options.quantize}: {reason}: {advice}")
        if not options.adapts or self.size:
            return
        name = "lora_rank" if options.lora_rank else "freeze"
        if options.lora_rank and options.freeze:
            raise OptionError("--lora_rank freezes all weights of --init_from already: omit --freeze")
        if trained is None:
            raise OptionError(f"--{name} is for weights that are trained already: add --init_from BASE")
        if trained.adapter:
            problem = f"--{name} needs a whole model, but {trained.adapter} is an adapter"
            command = f"python -m extra.adapters.merge {quoted(trained.path)} {quoted(trained.adapter)} OUT.safetensors"
            raise OptionError(f"{problem}: fold it into its base first, with {command}")
        # What does not fit the weights is refused when the model is put together.
        self.blueprint(options.model_config(trained.tokenizer.vocab_size, trained.tokenizer.specials))

    def refuse_if_used(self) -> None:
        """Raise OptionError if a new run would destroy another one."""
        if not (self.options.dry_run or self.options.profile):
            super().refuse_if_used()

    def unnamed_texts(self) -> Sequence[str]:
        """For a new run that names no text: those of which it takes the first that is available."""
        return () if self.options.dry_run else super().unnamed_texts()

    def number_of_workers(self) -> int:
        """The number of processes that share the work; those that mpirun started, if it did."""
        if (ranks := launched()[1]) == 1:
            return super().number_of_workers()
        if self.options.workers not in (0, ranks):
            say(f"note: the {ranks} processes that mpirun started replace --workers {self.options.workers}")
        self.most_workers(ranks, f"mpirun -n {ranks}")
        return ranks

    # --- the run ------------------------------------------------------------------------------------------------

    def carry_out(self, run: Callable[[RunSetup], int]) -> int:
        """Do what the command asks for: an estimate, a profile, or the run; returns the exit status."""
        if self.options.dry_run:
            return trials.dry_run(self)
        if self.options.profile:
            return trials.show_profile(self)
        status = run(self)
        if self.options.explain and status == launched()[0] == 0:
            import sample  # whose families import this module

            return sample.main([str(self.folder.path), *self.prompt, f"--explain={self.options.explain}"])
        return status

    def processes(self, program: Program, *run: Any) -> AbstractContextManager[OneProcess]:
        """The processes that do the work together: the ranks, if mpirun started this one."""
        if launched()[1] == 1:
            return super().processes(program, *run)
        from extra.mpi.mpi import start_ranks  # which only mpirun needs

        task, model, optimizer, *stop = run
        return start_ranks(Job(program, self.options, task, model, optimizer), model, optimizer, *stop)

    def log(self, task: Task, model: Module, optimizer: Optimizer) -> ShelfLog:
        """What writes the files of the run."""
        self.prompt = [f"--{task.asked_with}={task.example}"] if task.example else []  # for the page
        return ShelfLog(self, task, model, optimizer)

    def next_steps(self, task: Task) -> list[str]:
        """Commands worth typing after the run: a sample, the page that explains the model, and what the curve says."""
        (sampling,), run = super().next_steps(task), quoted(self.folder.path)
        page = [] if self.family.unexplained or self.options.explain else [f"{sampling} --explain page.html"]
        diagnosis = [f"python -m extra.studies.diagnose {run}"] if self.family.name in ("gpt", "seq2seq") else []
        return [sampling, *page, *diagnosis]
