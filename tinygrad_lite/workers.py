"""Who does the work of an update: this process alone, or several worker processes side by side.

        worker 0                              worker 1
    1.  gradients of its rows of the batch,   gradients of its rows of the batch,
        into row 0 of an array (W, N)         into row 1
    2.  adds up its half of the N columns     adds up the other half
    3.  updates its half of the N weights     updates the other half

The parent only says when each of the three begins, because each needs what the others did before. It blocks while it
waits, and so do the workers: who has nothing to do takes no time from those who have. The N weights, the W rows of
gradients and the optimizer's running means lie in memory that all processes see, so nothing of them is ever sent.

Why is this faster, although matrix products use all cores anyway? The products of a small model are over too soon for
sharing them to pay, and everything else in NumPy runs on one core. Whole processes share everything.

The memory belongs to no name and no file that could be left behind, and a worker ends when its pipe does: whatever
ends this process, even SIGKILL, leaves nothing.

This is data parallelism as in Goyal et al. 2017 (arXiv:1706.02677), section 3; that each worker updates only its own
part of the weights is the first stage of ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054).
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from tinygrad_lite.anomaly import detect_anomaly
from tinygrad_lite.cuda.guard import Guard
from tinygrad_lite.device import device_of, random_key
from tinygrad_lite.errors import UserError
from tinygrad_lite.family import Task
from tinygrad_lite.functional.registry import set_composed
from tinygrad_lite.nn import Module
from tinygrad_lite.optim import AdamW, Optimizer
from tinygrad_lite.profiler import Profile
from tinygrad_lite.run import release_memory, tune_memory
from tinygrad_lite.tensor import Tensor, no_grad
from tinygrad_lite.training import TrainOptions

PATIENCE = 5  # seconds that a worker is given to end
PROFILED = 10  # steps
STOPPING = (signal.SIGINT, signal.SIGTERM)  # the signals with which people stop a run
# What the libraries that multiply matrices for NumPy read when they start.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


# --- the work -------------------------------------------------------------------------------------------------


def compute_gradients(
    seed: int, task: Task, model: Module, step: int, worker: int = 0, workers: int = 1
) -> tuple[list[Tensor], int]:
    """Forward and backward through a worker's rows of all batches of an update: its parts of the loss, and its tokens.

    The loss of an update is the mean over all its target tokens: the sum of the means of parts, each times its share
    of the tokens. So several small batches, or parts of one, give exactly the gradient of a large one, whether or not
    they have equally many tokens.
    """
    total = task.target_tokens(step)
    losses, learned = [], 0
    for micro_step, (batch, tokens) in enumerate(task.micro_batches(step, worker, workers)):
        with random_key(seed, step, micro_step, worker):
            part = model.loss(batch) * (tokens / total)
        part.backward()
        losses.append(part.detach())
        learned += tokens
    return losses, learned


def sum_of_losses(task: Task, model: Module, worker: int = 0, workers: int = 1) -> tuple[float, int]:
    """What a worker's share of the held-out data costs the model, in nats, without dropout; and its target tokens."""
    model.eval()
    nats, count = 0.0, 0
    with no_grad():
        for batch, tokens in task.validation_batches(worker, workers):
            nats += model.loss(batch).item() * tokens
            count += tokens
    model.train()
    return nats, count


def profile_steps(
    options: TrainOptions, task: Task, model: Module, optimizer: Optimizer, worker: int = 0, workers: int = 1
) -> tuple[float, int, str]:
    """What the operations of a worker's share of some steps cost: seconds and tokens of a step, and a table."""
    part = slice(0, optimizer.values.data.size // workers)
    optimizer.lr = 0.0  # an update costs as much as with another
    tokens = 0
    compute_gradients(options.seed, task, model, 0, worker, workers)  # only warms up
    with Profile(device_of(optimizer.values.data).synchronize) as profile:
        for step in range(PROFILED):
            optimizer.zero_grad()
            tokens += compute_gradients(options.seed, task, model, step, worker, workers)[1]
            optimizer.gather_gradients()
            optimizer.clip_grad_norm(options.grad_clip)
            optimizer.step(part)
            profile.note("(zeroing, clipping, update)")
    return profile.seconds / PROFILED, tokens // PROFILED, profile.table(PROFILED)


class Measures(NamedTuple):
    """What a step has shown.

    Attributes:
        loss: mean nats per target token.
        norm: of the gradients, before they were scaled down.
        broken: the first step whose loss or norm is NaN or infinite, and then they are that step's; None if none is.
    """

    loss: float
    norm: float
    broken: int | None


class OneProcess:
    """All work is done here, one thing after the other."""

    number = 1
    look_is_free = True  # whether the loss is known anyway: who asks a GPU for a number waits for all that it has to do

    def __init__(self, options: TrainOptions, task: Task, model: Module, optimizer: Optimizer) -> None:
        self.options, self.task, self.model, self.optimizer = options, task, model, optimizer

    def gradients(self, step: int) -> int:
        """Compute the gradients of an update; returns how many target tokens it learns from."""
        self.optimizer.zero_grad()
        losses, tokens = compute_gradients(self.options.seed, self.task, self.model, step)
        self.step, self.loss = step, sum(loss.item() for loss in losses)
        return tokens

    def clip(self, max_norm: float) -> None:
        """Scale the gradients down to this global norm, if it is not 0."""
        self.norm = self.optimizer.clip_grad_norm(max_norm)

    def look(self) -> Measures:
        """The loss and the gradients' norm of the last step, and whether something is broken."""
        is_broken = not math.isfinite(self.loss + self.norm)
        return Measures(self.loss, self.norm, self.step if is_broken else None)

    def update(self, learning_rate: float) -> None:
        """Change the weights."""
        self.optimizer.lr = learning_rate
        self.optimizer.step()

    def evaluate(self) -> float:
        """Mean loss on what is held out, in nats per target token; always the same data, without dropout."""
        nats, tokens = sum_of_losses(self.task, self.model)
        return nats / tokens

    def profile(self) -> tuple[float, int, str]:
        """Seconds and tokens of a training step, and a table of its operations; the weights stay as they are."""
        return profile_steps(self.options, self.task, self.model, self.optimizer)

    def find_anomaly(self, step: int) -> None:
        """Compute the gradients of a step once more, in the checking mode.

        Raises: NonFiniteError that names the operation with the first NaN or infinity, if there is one.
        """
        self.optimizer.zero_grad()
        with detect_anomaly():
            for worker in range(self.number):
                compute_gradients(self.options.seed, self.task, self.model, step, worker, self.number)


class OneGPU(OneProcess):
    """The same on a GPU, which works through what it is given while Python goes on: only `look` waits for it.

    So Python does not see a NaN at once. The GPU itself does: from then on it changes no weight (see cuda/guard.py), so
    that at the next look the step can be run again from the weights that it had.
    """

    look_is_free = False

    def __init__(self, options: TrainOptions, task: Task, model: Module, optimizer: Optimizer) -> None:
        super().__init__(options, task, model, optimizer)
        self.guard = Guard(optimizer.values.data)
        optimizer.guard = self.guard.numbers

    def gradients(self, step: int) -> int:
        self.optimizer.zero_grad()
        self.losses, tokens = compute_gradients(self.options.seed, self.task, self.model, step)
        self.step = step
        return tokens

    def clip(self, max_norm: float) -> None:
        self.guard.judge(self.losses, self.optimizer.gather_gradients(), max_norm, self.step)

    def look(self) -> Measures:
        return Measures(*self.guard.look())


# --- several processes ----------------------------------------------------------------------------------------


class ManyProcesses(OneProcess):
    """The same, shared between worker processes.

    The weights of `model` and what `optimizer` remembers are moved into the shared memory, so here, too, they are
    always up to date.
    """

    def __init__(self, number: int, options: TrainOptions, task: Task, model: Module, optimizer: Optimizer) -> None:
        super().__init__(options, task, model, optimizer)
        self.number = number
        self.scale = 1.0  # what the gradients are still to be multiplied by
        self.unreached: set[str] = set()  # the parameters to which no worker has a gradient
        self.pipes: list[Connection] = []
        self.processes: list[multiprocessing.process.BaseProcess] = []
        context = multiprocessing.get_context("spawn")  # a new Python, which no thread or lock of this one can disturb
        rows = 1 + len(optimizer.states) + number
        memory = context.RawArray(ctypes.c_char, rows * optimizer.values.data.nbytes)
        lay_into(memory, optimizer, worker=0, contents=True)
        frozen = {name: name in optimizer.places for name, p in model.named_parameters() if not p.requires_grad}
        try:
            with starting():
                for worker in range(number):
                    here, there = context.Pipe()
                    arguments = (there, worker, number, memory, options, task, type(model), model.config, frozen)
                    process = context.Process(target=work, args=arguments, name=f"worker {worker}", daemon=True)
                    process.start()
                    there.close()  # the worker has its own; when it ends, reading here must end too
                    self.pipes.append(here)
                    self.processes.append(process)
            self._answers()
        except BaseException:
            self.close()
            raise
        release_memory()  # of the arrays that lay outside the shared memory before

    def gradients(self, step: int) -> int:
        losses, tokens, unreached = zip(*self._ask("gradients", step), strict=True)
        self.step, self.loss, self.unreached = step, sum(losses), set.intersection(*unreached)
        return sum(tokens)

    def clip(self, max_norm: float) -> None:
        self.norm = math.sqrt(sum(self._ask("add")))
        self.scale = max_norm / self.norm if 0 < max_norm < self.norm else 1.0

    def update(self, learning_rate: float) -> None:
        optimizer = self.optimizer
        self._ask("update", optimizer.steps, optimizer.skipped, self.unreached, learning_rate, self.scale)
        optimizer.count_update(self.unreached)
        optimizer.values.mark_written()

    def evaluate(self) -> float:
        nats, tokens = zip(*self._ask("evaluate"), strict=True)
        return sum(nats) / sum(tokens)

    def profile(self) -> tuple[float, int, str]:
        answers = self._ask("profile")  # all at once, as they work
        return max(a[0] for a in answers), sum(a[1] for a in answers), answers[0][2]

    def close(self) -> None:
        """End the workers."""
        for pipe in self.pipes:
            pipe.close()  # the end of its pipe is what a worker waits for
        for process in self.processes:
            process.join(PATIENCE)
            if process.is_alive():
                process.kill()
                process.join()

    def _ask(self, what: str, *arguments: Any) -> list[Any]:
        """Have all workers do something at the same time; their answers."""
        for worker, pipe in enumerate(self.pipes):
            try:
                pipe.send((what, *arguments))
            except OSError:
                self._raise_gone(worker)
        return self._answers()

    def _answers(self) -> list[Any]:
        """What each worker has to say.

        Raises: UserError if a worker is gone; RuntimeError with its traceback if it failed.
        """
        answers = []
        for worker, pipe in enumerate(self.pipes):
            try:
                failure, answer = pipe.recv()
            except (EOFError, OSError):
                self._raise_gone(worker)
            if failure:
                raise MemoryError if failure == "MemoryError" else RuntimeError(f"in worker {worker}:\n{failure}")
            answers.append(answer)
        return answers

    def _raise_gone(self, worker: int) -> None:
        process = self.processes[worker]
        process.join(PATIENCE)
        status = process.exitcode
        reason = f"ended with status {status}" if status is None or status >= 0 else signal.Signals(-status).name
        raise UserError(
            f"worker {worker} (process {process.pid}) is gone: {reason}; perhaps memory ran out; what was saved before "
            "is intact: --resume goes on from there, --workers 1 takes less memory"
        )


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Inside, new processes are born with one thread for matrix products, and deaf to Ctrl-C and SIGTERM.

    Ctrl-C reaches all processes of a terminal, and SIGTERM often all of a group. Only the parent shall act on them: it
    finishes the step and saves, and for that it needs the workers.
    """
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def lay_into(memory: Any, optimizer: Optimizer, worker: int, contents: bool) -> np.ndarray:
    """Lay an optimizer's flat arrays into the shared memory; returns the gradients of all workers, (W, N).

    The rows of the memory are: the weights, the optimizer's states, and the gradients of each worker.

    Args:
        worker: whose row of gradients the optimizer takes.
        contents: whether its weights and states go along; otherwise it takes those that are there.
    """
    values = optimizer.values.data
    rows = np.frombuffer(memory, values.dtype).reshape(-1, values.size)
    end = 1 + len(optimizer.states)
    optimizer.move_into(rows[0], rows[end + worker], rows[1:end], contents)
    return rows[end:]


def work(
    pipe: Connection,
    worker: int,
    number: int,
    memory: Any,
    options: TrainOptions,
    task: Task,
    model_class: type,
    config: Any,
    frozen: dict[str, bool],
) -> None:
    """The life of a worker process: get ready, then do what the parent asks for until it closes the pipe."""
    for number_of_signal in STOPPING:
        signal.signal(number_of_signal, signal.SIG_IGN)
    tune_memory()
    np.seterr(all="ignore")
    set_composed(options.composed)

    def answer(function: Callable, *arguments: Any) -> Any:
        try:
            result = function(*arguments)
        except MemoryError:
            pipe.send(("MemoryError", None))
        except Exception:
            pipe.send((traceback.format_exc(), None))
        else:
            pipe.send(("", result))

    helper = Worker(worker, number, memory, options, task, model_class, config, frozen)
    with contextlib.suppress(EOFError, OSError):  # the parent has closed the pipe, or is gone
        answer(helper.get_ready)
        while True:
            what, *arguments = pipe.recv()
            answer(getattr(helper, what), *arguments)


class Worker:
    """What one worker process has and does.

    Args:
        frozen: the parameters that are not learned, and whether the optimizer has a place for them.
    """

    def __init__(
        self,
        worker: int,
        number: int,
        memory: Any,
        options: TrainOptions,
        task: Task,
        model_class: type,
        config: Any,
        frozen: dict[str, bool],
    ) -> None:
        self.worker, self.number, self.memory, self.options, self.task = worker, number, memory, options, task
        self.model_class, self.config, self.frozen = model_class, config, frozen

    def get_ready(self) -> None:
        """Make a model and an optimizer whose weights are those in the shared memory."""
        self.model = self.model_class(self.config)
        self.model.to("cpu", self.options.weight_dtype)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad = self.frozen.get(name, True)  # what has a place in the memory needs one here, too
        self.optimizer = self.options.make_optimizer(self.model)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad = name not in self.frozen
        self.all_gradients = lay_into(self.memory, self.optimizer, self.worker, contents=False)
        size = self.all_gradients.shape[1]
        # The columns that this worker sums up and updates.
        self.own = slice(size * self.worker // self.number, size * (self.worker + 1) // self.number)

    def gradients(self, step: int) -> tuple[float, int, set[str]]:
        """1. The gradients of its rows, 0 for the parameters that none of them reaches, and the names of these."""
        self.optimizer.zero_grad()
        losses, tokens = compute_gradients(self.options.seed, self.task, self.model, step, self.worker, self.number)
        unreached = self.optimizer.unreached()
        self.optimizer.gather_gradients()
        return sum(loss.item() for loss in losses), tokens, unreached

    def add(self) -> float:
        """2. The sum of all workers' gradients, in its columns of its own row; the sum of their squares."""
        total = self.all_gradients[self.worker, self.own]
        for other in range(self.number):
            if other != self.worker:
                total += self.all_gradients[other, self.own]
        return float(total @ total)

    def update(
        self, steps: int, skipped: dict[str, int], unreached: set[str], learning_rate: float, scale: float
    ) -> None:
        """3. New weights, in its columns, of all parameters that some worker has reached."""
        if scale != 1:
            self.all_gradients[self.worker, self.own] *= scale
        optimizer = self.optimizer
        optimizer.adopt_gradients(optimizer.unreached() - unreached)
        optimizer.steps, optimizer.skipped, optimizer.lr = steps, skipped, learning_rate
        optimizer.step(self.own)

    def profile(self) -> tuple[float, int, str]:
        """What its operations cost."""
        return profile_steps(self.options, self.task, self.model, self.optimizer, self.worker, self.number)

    def evaluate(self) -> tuple[float, int]:
        """The loss on its share of what is held out."""
        return sum_of_losses(self.task, self.model, self.worker, self.number)


@contextlib.contextmanager
def start_workers(options: TrainOptions, task: Task, model: Module, optimizer: Optimizer) -> Iterator[OneProcess]:
    """What does the work of the updates, as `options.workers` says; inside, weights change only through it."""
    if options.workers == 1:
        can_wait = options.device == "cuda" and type(optimizer) is AdamW and not options.composed
        yield (OneGPU if can_wait else OneProcess)(options, task, model, optimizer)
        return
    crew = None
    try:
        crew = ManyProcesses(options.workers, options, task, model, optimizer)
        yield crew
    finally:
        if crew:
            crew.close()
