"""Measure pages in a browser: of a GPT, first paint, first answer, the time of a token; of one that learns, its steps.

    python -m benchmarks.explorer                         the newest run under out/
    python -m benchmarks.explorer out/goethe --turns 9

It needs Chromium (on Debian: apt-get install chromium) and the extra e2e. The targets for the default checkpoint: first
paint within 0.3 s, a token within 5 ms; for the page of `python -m extra.studies.learn`, 20 steps per second. A token
is one forward pass at the end of half a context, and a click on "Next token", which also draws the panels that can be
seen.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from extra.explorer import learning
from extra.explorer.gpt import page
from extra.plots.figure import write_or_refuse
from gpt.trained import load_trained
from text.decoding.sample_options import SampleOptions
from tinygrad_lite.config import option
from tinygrad_lite.errors import UserError
from training.cli.command_line import read_command
from training.cli.console import run_command, say

NAMES = ("chromium", "chromium-browser", "google-chrome")
TOKENS = 40  # per turn
PROMPT = "Habe nun, ach! Philosophie, Juristerei und Medizin "
# Fills half of the context, then times forward passes, and clicks with the pictures that follow them.
TIMES = """async (tokens) => {
  const ids = session.read;
  session.setText(session.text(Array.from({ length: session.data.context / 2 }, (_, i) => ids[i % ids.length])));
  const cache = session.model().newCache();
  for (const token of session.read) session.model().predict(token, cache);
  let begin = performance.now();
  for (let i = 0; i < tokens; i++) session.model().predict(session.read[0], cache);
  const forward = (performance.now() - begin) / tokens;
  document.getElementById("next").scrollIntoView();
  await new Promise((resolve) => setTimeout(resolve, 500));
  let click = 0;
  for (let i = 0; i < tokens; i++) {
    begin = performance.now();
    document.querySelector("#next button").click();
    await new Promise((resolve) => requestAnimationFrame(resolve)); // the panels are drawn in this picture
    await new Promise((resolve) => setTimeout(resolve));
    click += (performance.now() - begin) / tokens;
  }
  const paint = performance.getEntriesByName("first-paint")[0]?.startTime ?? NaN;
  return { paint, ready: performance.getEntriesByName("ready")[0].startTime, forward, click };
}"""
LEARNING = 8  # seconds
STEPS = """() => ({ steps: learning.report.perSecond, size: learning.parameters })"""
ROWS = {
    "paint": "first paint, ms after the page was opened",
    "ready": "ready to answer, ms",
    "forward": "a token: the forward pass, ms",
    "click": "a token: from the click to the picture, ms",
    "steps": "learning in the page: steps per second",
    "size": "its parameters",
}


@dataclass
class ExplorerOptions:
    """The options of `python -m benchmarks.explorer`."""

    turns: int = option(5, "times the page is opened", unit="times", low=1)


def find_chromium() -> str | None:
    """The browser; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser.

    Raises: UserError if it or the extra e2e is missing.
    """
    if not find_spec("playwright"):
        raise UserError('this needs playwright: pip install -e ".[e2e]"')
    if not find_chromium():
        raise UserError("this needs Chromium: on Debian, apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # In a container, root has no sandbox to run it in; it opens only pages that we wrote.
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    options, names = read_command(
        ExplorerOptions,
        argv,
        "python -m benchmarks.explorer",
        "First paint and time per token of a GPT's page in Chromium, and steps per second of one that learns.",
        "CHECKPOINT",
        about_positional="a checkpoint or a run's folder (default: the newest under out/)",
    )
    trained = load_trained(Path(names[0] if names else "out"))
    say(trained.about)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        path = Path(folder) / "page.html"
        write_or_refuse(path, page(SampleOptions(), trained, PROMPT))
        learns = Path(folder) / "learn.html"
        write_or_refuse(learns, learning.page())
        turns = [measured(browser, path) | learned(browser, learns) for _ in range(options.turns)]
        megabytes = path.stat().st_size / 1e6
    for name, words in ROWS.items():
        numbers = sorted(turn[name] for turn in turns)
        print(f"{words:<46} {median(numbers):>8.1f}   ({numbers[0]:.1f} to {numbers[-1]:.1f})")
    print(f"{'size of the page, MB':<46} {megabytes:>8.1f}")
    return 0


def measured(browser: Any, path: Path) -> dict[str, float]:
    """Open the page once, and time it."""
    tab = browser.new_page(viewport={"width": 1100, "height": 900})
    tab.goto(path.as_uri())
    tab.locator("#status").wait_for(state="hidden")
    found = tab.evaluate(TIMES, TOKENS)
    tab.close()
    return found


def learned(browser: Any, path: Path, seconds: float = LEARNING) -> dict[str, float]:
    """Open the page in which a GPT learns once, and let it learn for some seconds."""
    tab = browser.new_page(viewport={"width": 1100, "height": 900})
    tab.goto(path.as_uri())
    tab.wait_for_timeout(1000 * seconds)
    found = tab.evaluate(STEPS)
    tab.close()
    return found


if __name__ == "__main__":
    run_command("benchmarks.explorer", main)
