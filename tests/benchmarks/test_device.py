"""`python -m benchmarks.device`: the widths, the measurements and the conclusions."""

import pytest

from benchmarks.device import (
    DeviceOptions,
    Width,
    check_losses,
    conclusions,
    crossing,
    main,
    table,
)
from tinygrad_lite.cli.errors import UserError

TINY = "--turns 2 --seconds 0.001 --n_layer 1 --block_size 8 --batch_size 2 --head_width 8".split()


def measured(width: int, **turns: list[float]) -> Width:
    return Width(width, 1000 * width, turns)


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ({32: 0.5, 64: 1.0, 128: 2.0}, "The GPU is faster from a width of about 64."),
        ({32: 0.25, 128: 4.0}, "The GPU is faster from a width of about 64."),
        ({32: 2.0, 64: 0.5, 256: 2.0}, "The GPU is faster from a width of about 128."),  # for good, that is
        ({32: 1.5, 64: 3.0}, "The GPU is faster at every width measured, from 32."),
        ({32: 0.5, 64: 0.9}, "The CPU is faster at every width measured, up to 64."),
        ({32: 1.5, 64: 0.9}, "There is no width from which the GPU is faster: at the largest, 64, the CPU is."),
    ],
)
def test_the_crossing(ratios, expected):
    assert crossing(ratios) == expected


def test_ratios_are_taken_turn_by_turn():
    assert measured(64, cpu=[4.0, 8.0], cuda=[2.0, 1.0]).ratios == [2.0, 8.0]
    assert measured(64, cpu=[4.0], cuda=[2.0, 1.0]).ratios == [2.0]  # a slow CPU has one turn only
    assert measured(64, cpu=[4.0]).ratios == []


def test_the_table_says_where_the_cpu_was_skipped():
    found = [measured(32, cpu=[2.0], cuda=[4.0]), measured(64, cpu=[5000.0], cuda=[5.0]), measured(128, cuda=[6.0])]
    page = table(found, DeviceOptions(cpu_only=True), widest=128)
    assert "| 32 | 32,000 | 2.00 (2.00 to 2.00) | 4.00 (4.00 to 4.00) | **0.500 (0.500 to 0.500)** |" in page
    assert "| 128 | 128,000 | – | 6.00 (6.00 to 6.00) | – |" in page
    assert conclusions(found, DeviceOptions(), 128) == [
        "The GPU is faster from a width of about 34.",
        "The largest speed-up is 1,000, at a width of 64.",
        "The CPU was skipped beyond a width of 64, where a step took 5.00 s (--longest 3).",
    ]
    assert conclusions(found[:1], DeviceOptions(), 32) == ["The CPU is faster at every width measured, up to 32."]


def test_the_cpu_alone_is_measured_until_it_is_too_slow(capsys):
    assert main(["--cpu-only", "--widths", "8", "16", "24", *TINY]) == 0
    said = capsys.readouterr().out
    assert [f"| {width} |" in said for width in (8, 16, 24)] == [True] * 3
    assert "- GPU: " not in said
    assert "faster" not in said
    assert main(["--cpu-only", "--widths", "8", "16", "--longest", "1e-9", *TINY]) == 0
    said = capsys.readouterr().out
    assert "| 16 |" not in said
    assert "skipped beyond a width of 8" in said


@pytest.mark.slow
def test_both_devices_are_measured_and_plotted(cuda, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "device.svg"
    assert main(["--widths", "8", "16", "--dtype", "tf32", "--out", str(picture), *TINY]) == 0
    said = capsys.readouterr().out
    assert said.count("–") == 0
    assert "- GPU: " in said
    assert "tf32" in said
    assert "at every width measured" in said or "from a width of about" in said
    drawn = picture.read_text(encoding="utf-8")
    assert ">GPU<" in drawn
    assert "speed-up over the CPU" in drawn


def test_devices_that_compute_differently_are_refused():
    check_losses(64, {"cpu": 4.0, "cuda": 4.0003}, 1e-4)
    check_losses(64, {"cpu": 4.0}, 1e-4)
    with pytest.raises(UserError, match="width 64: the initial losses of the devices differ"):
        check_losses(64, {"cpu": 4.0, "cuda": 4.001}, 1e-4)
    with pytest.raises(UserError):
        check_losses(64, {"cpu": 4.0, "cuda": float("nan")}, 1e-4)
