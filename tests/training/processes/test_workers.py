"""Several processes compute what one does, and none of them is ever left behind."""

import contextlib
import errno
import multiprocessing
import os
import signal
import weakref
from dataclasses import replace
from multiprocessing import util
from unittest.mock import Mock

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import train
from families import FAMILIES
from gpt.model import GPT as GPT_MODEL
from tests.gpt.combined_settings import COMBINED
from tests.reliability.disturbed import children_of, wait_until
from tests.tiny_runs import arguments, assert_resumes, finish, losses, run_training, script
from tinygrad_lite.errors import OptionError, UserError
from tinygrad_lite.nn import Parameter
from training import folder, setup
from training.checkpoint import load_checkpoint
from training.cli.options import build
from training.folder import RunFolder, available_cores
from training.processes import workers
from training.processes.workers import start_processes
from training.setup import RunSetup

pytestmark = pytest.mark.usefixtures("workplace", "no_signal_ignored")
SLOW = pytest.mark.slow  # each starts several processes
GPT = FAMILIES["gpt"]
GPTOptions = GPT.options
SMALL = {"text": ["text.txt"], "n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 8, "batch_size": 5}


def parts(**changes):
    """Options, task, model and optimizer of a small run."""
    options = build(GPTOptions, ("test", SMALL | changes))
    run = RunSetup(GPT, options, RunFolder("run"))
    task = run.make_task()
    model = run.make_model(task.tokenizer)
    return options, task, model, options.make_optimizer(model)


def is_running(process_id):
    try:
        with open(f"/proc/{process_id}/stat", encoding="utf-8") as file:
            return file.read().rsplit(") ", 1)[1][0] != "Z"
    except FileNotFoundError:
        return False


def train_on(settings, steps, change=lambda model: None):
    """Train for some steps with train.py's loop: the model, the optimizer, and loss and norm before each update."""
    options, task, model, _ = parts(**settings, max_iters=steps, decay_lr=False)
    model = change(model) or model
    optimizer = options.make_optimizer(model)
    numbers, flat = [], weakref.ref(optimizer.memory.values.data)
    with start_processes(train.only_updates, options, task, model, optimizer) as comm:
        assert comm.size == options.workers
        assert comm.size == 1 or flat() is None  # the weights are in shared memory, and nowhere else
        for step in range(steps):
            train.only_updates(replace(options, max_iters=step + 1), task, model, optimizer, comm)
            numbers += comm.numbers()[1:]
    return model, optimizer, numbers


# --- the same numbers -----------------------------------------------------------------------------------------


COMPARED = [
    {"optimizer": "muon", "gradient_accumulation_steps": 3, **COMBINED["speed run"]},
    pytest.param({"gradient_accumulation_steps": 3}, marks=SLOW),
    pytest.param({"optimizer": "adam", "grad_clip": 0.01}, marks=SLOW),
]


@pytest.mark.parametrize("settings", COMPARED)
def test_one_process_and_several_compute_the_same_numbers(settings):
    """Three processes share five rows: 1, 2 and 2."""
    found = []
    for number in (1, 3):
        model, optimizer, numbers = train_on({"workers": number, "dtype": "float64", **settings}, 4)
        assert optimizer.steps == 4
        found.append((numbers, model.state_dict(), optimizer.state_dict()))
    one, three = found
    np.testing.assert_allclose(three[0], one[0], rtol=1e-10)
    for states, others in zip(three[1:], one[1:], strict=True):
        for name in others:
            np.testing.assert_allclose(states[name], others[name], rtol=1e-7, atol=1e-9)


class Picky(GPT_MODEL):
    """A GPT with extra parameters: two used by the batches of one worker each, one by no batch, and one frozen."""

    def __init__(self, config):
        super().__init__(config)
        self.of_two, self.of_three, self.unused, self.frozen = (Parameter(np.ones((2, 2))) for _ in range(4))
        self.frozen.requires_grad = False
        self.to("cpu", "float64")

    def loss(self, batch):
        mine = self.of_two if len(batch[0]) == 2 else self.of_three
        return super().loss(batch) + ((mine + self.frozen) ** 2).sum() * 0.01


def test_processes_agree_on_which_parameters_were_reached():
    """Parameters that one process reached move; unreached and frozen ones do not even decay."""
    settings = {"workers": 2, "dtype": "float64", "learning_rate": 1e-2}
    with pytest.warns(UserWarning, match="has reached unused: not updated"):
        model, optimizer, _ = train_on(settings, 2, lambda model: Picky(model.config))
    assert (np.array([model.unused.numpy(), model.frozen.numpy()]) == 1).all()
    assert (np.array([model.of_two.numpy(), model.of_three.numpy()]) < 1).all()
    assert optimizer.skipped == {"unused": 2, "frozen": 2}


@pytest.mark.parametrize(("stop", "optimizer"), [pytest.param(3, "adamw", marks=SLOW), (8, "muon")])
def test_a_stopped_run_resumes_bit_for_bit(stop, optimizer):
    """With the same number of workers, since each has its own dropout masks."""
    settings = {"workers": 2, "dropout": 0.2, "optimizer": optimizer}
    whole = assert_resumes(*arguments(**settings, out_dir=None), stop=stop)
    assert load_checkpoint(whole.last).training["workers"] == 2


def test_a_batch_may_have_fewer_pairs_than_workers():
    """The third worker has nothing to do."""
    words = ["reverse", "--toy_size=60", "--batch_tokens=300", "--n_embd=16", "--max_iters=3", "--eval_interval=3"]
    for number in (1, 3):
        assert train.main([*words, "--workers", str(number), "--out_dir", str(number)]) == 0
    assert losses(RunFolder("3"), "val_loss")[3] == pytest.approx(losses(RunFolder("1"), "val_loss")[3], abs=1e-5)


# --- number of workers-------------------------------------------------------------------------------------------


DEFAULTS = [(2, {}, 2), (64, {}, 4), (64, {"batch_size": 3}, 3), (1, {}, 1), (2, {"workers": 3}, 3)]


@pytest.mark.parametrize(("cores", "settings", "expected"), DEFAULTS)
def test_workers_default_to_the_cores_at_most_four_and_at_most_the_batch(cores, settings, expected, monkeypatch):
    monkeypatch.setattr(setup, "available_cores", lambda: cores)
    assert RunSetup(None, build(GPTOptions, ("test", settings)), None).number_of_workers() == expected


# For each thread of a made-up processor, those of its core, as Linux lists them; the cores of threads 0 and 1; of all.
PROCESSORS = {
    "no hyper-threading": (["0", "1", "2", "3"], 2, 4),
    "two cores with neighbouring threads": (["0-1", "0-1", "2-3", "2-3"], 1, 2),
    "two cores with distant threads": (["0,2", "1,3", "0,2", "1,3"], 2, 2),
    "unknown": ([], 2, 4),
}


@pytest.mark.parametrize(("threads", "first_two", "all_of_them"), PROCESSORS.values(), ids=PROCESSORS)
def test_hardware_threads_of_one_core_count_once(threads, first_two, all_of_them, tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "CPUS", tmp_path)
    for number, siblings in enumerate(threads):
        (tmp_path / f"cpu{number}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{number}" / "topology" / "core_cpus_list").write_text(f"{siblings}\n", encoding="ascii")
    for allowed, expected in ((2, first_two), (4, all_of_them)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process, n=allowed: range(n), raising=False)
        monkeypatch.setattr(folder, "Path", lambda name: tmp_path / "no limit")  # of a container
        assert available_cores() == expected


LIMITS = [("max 100000", 4), ("350000 100000", 4), ("200000 100000", 2), ("150000 100000", 2), ("20000 100000", 1)]


def test_a_containers_limit_counts_and_elsewhere_python_knows_the_number(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(folder, "Path", lambda name: tmp_path / "cpu.max")
    for known, expected in ((3, 3), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda known=known: known)
        assert available_cores() == expected
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    for limit, expected in LIMITS:
        (tmp_path / "cpu.max").write_text(f"{limit}\n", encoding="ascii")
        assert available_cores() == expected


def test_more_workers_than_rows_are_refused():
    for settings, reason in (
        ({"workers": 6, "batch_size": 5}, "--workers 6: each needs a part of the batch; use at most 5"),
        ({"workers": 2, "device": "cuda"}, "one keeps a GPU busy; use at most 1"),
    ):
        with pytest.raises(OptionError, match=reason):
            RunSetup(None, build(GPTOptions, ("test", settings)), None).number_of_workers()


# --- ends and errors ------------------------------------------------------------------------------------------


def meet(options, task, model, optimizer, comm):
    """A program that only waits for the others, repeatedly, and does what process 0 says."""
    while True:
        said = comm.gather(None)[0]
        if said == "fail":
            raise KeyError("a reason")
        if said == "run out of memory":
            raise MemoryError


def test_processes_end_with_the_block_and_after_an_error(monkeypatch):
    """Inside, each multiplies matrices on one thread; afterwards, the number of threads is restored."""
    before = [library["num_threads"] for library in threadpool_info()]
    for expected in (pytest.raises(KeyError, match="x"), contextlib.nullcontext()):
        with expected as error, start_processes(meet, *parts(workers=2)) as comm:
            processes = comm.processes
            assert {library["num_threads"] for library in threadpool_info()} == {1}
            assert all(process.is_alive() for process in processes)
            assert comm.gather(5) == [5, None]
            if error is not None:
                raise KeyError("x")
        assert not any(process.is_alive() for process in processes)
        assert [process.exitcode for process in processes] == [0]
        assert [library["num_threads"] for library in threadpool_info()] == before
        monkeypatch.delattr(signal, "pthread_sigmask", raising=False)  # then as on Windows, which blocks no signals


def test_a_process_that_was_killed_is_named():
    with start_processes(meet, *parts(workers=2)) as comm:
        comm.gather(None)
        os.kill(comm.processes[0].pid, signal.SIGKILL)
        comm.processes[0].join()
        with pytest.raises(UserError, match=r"worker 1 \(process \d+\) has ended: SIGKILL; .* --resume continues from"):
            comm.gather(None)


FAILURES = [("fail", RuntimeError, "KeyError: 'a reason'"), ("run out of memory", MemoryError, None)]


@pytest.mark.parametrize(("what", "error", "words"), FAILURES)
def test_a_failure_in_another_process_is_reported(what, error, words):
    with start_processes(meet, *parts(workers=2)) as comm:
        comm.gather(what)
        with pytest.raises(error, match=words):
            comm.gather(None)


def test_processes_that_cannot_start_leave_none_behind(monkeypatch):
    options, task, model, optimizer = parts(workers=2)
    monkeypatch.setattr(task, "data", lambda: None)  # a function without a name, which cannot be sent
    before = children_of(os.getpid())
    with pytest.raises(Exception, match="pickle"), start_processes(meet, options, task, model, optimizer):
        pass
    assert children_of(os.getpid()) == before


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc")
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=SLOW), signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_the_script(number, workplace):
    """Even if the signal reaches all of them, as Ctrl-C in a terminal and SIGTERM from `timeout` do."""
    words = arguments(max_iters=100_000, eval_interval=100_000, workers=2)
    process = script("train.py", *words)
    wait_until((workplace / "run" / "last.safetensors").exists)
    wait_until(lambda: len(children_of(process.pid)) >= 1)
    family, is_killed = [process.pid, *children_of(process.pid)], number == signal.SIGKILL
    for one in family[1:] * (not is_killed):
        os.kill(one, number)
    process.send_signal(number)
    status, _, err = finish(process)
    wait_until(lambda: not any(map(is_running, family)))
    assert status == (-number if is_killed else 128 + number)
    assert (f"stopped by {number.name}" in err) != is_killed
    assert "Traceback" not in err


def test_a_loss_that_is_not_finite_is_explained():
    """The checking mode runs the parts of all workers one after the other."""
    with pytest.raises(UserError, match=r"step \d+: the loss is .* (produced a NaN|produced an infinity|broken the)"):
        run_training(workers=2, learning_rate=1e30, grad_clip=0, max_iters=10)


# --- while the processes start --------------------------------------------------------------------------------


NEEDS_POSIX = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


@NEEDS_POSIX
def test_a_process_that_was_killed_while_it_started_is_named(monkeypatch):
    """With more work than fits into a pipe, which nobody would read."""
    options, task, model, optimizer = parts(workers=3)
    task.ballast = np.zeros(1 << 20)
    start_process, started = util.spawnv_passfds, []

    def start_and_kill_the_second(path, words, handles):
        process_id = start_process(path, words, handles)
        if any(b"spawn_main" in os.fsencode(word) for word in words):
            started.append(process_id)
        if len(started) == 2:
            os.kill(process_id, signal.SIGKILL)
        return process_id

    monkeypatch.setattr(util, "spawnv_passfds", start_and_kill_the_second)
    with (
        pytest.raises(UserError, match=r"worker 2 \(process \d+\) has ended: SIGKILL"),
        start_processes(meet, options, task, model, optimizer),
    ):
        pass
    assert not any(map(is_running, started))


ADVICE = {errno.ENOMEM: r"^there is not enough memory on the computer: .* or --workers 1"}
REFUSED = [("Arena", errno.ENOENT), ("Arena", errno.ENOMEM), ("Process", errno.EAGAIN)]
REFUSED += [pytest.param("posix_fallocate", errno.ENOSPC, marks=NEEDS_POSIX)]


@pytest.mark.parametrize(("what", "number"), REFUSED)
def test_a_system_that_refuses_processes_or_shared_memory_gives_advice(what, number, monkeypatch):
    """Also memory that is taken by others between the question whether there is enough and its first use."""
    refuse = Mock(side_effect=OSError(number, os.strerror(number)))
    place = next(one for one in (os, workers, multiprocessing.get_context("spawn").__class__) if hasattr(one, what))
    monkeypatch.setattr(place, what, refuse)
    advice = ADVICE.get(number, rf"\({os.strerror(number)}\): use --workers 1, which needs neither")
    with pytest.raises(UserError, match=advice):
        train.main(arguments(workers=2))
    assert not multiprocessing.active_children()
