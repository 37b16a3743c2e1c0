"""How much does a draft help? The same model writes with and without it, in turns.

    python docs/course/24-order/drafts.py smollm2 lookup --draft_tokens 16
    python docs/course/24-order/drafts.py out/goethe goethe

The prompt asks for a text once more, which a model that has learned to copy does; without --repeats it is only a
beginning. The ratio is the median over the turns.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from extra.gpt.speculative import with_draft
from extra.gpt.trained import load_trained
from extra.options import ShelfSampleOptions
from extra.studies.program import program
from text.decoding.sampling import generate
from tinygrad_lite.config import option
from training.cli.console import run_command, show

TEXT = (
    "The committee met on Tuesday, 14 May, in the old town hall. Present were Anna Schmidt (chair), Paul Weber, Clara "
    "Neumann and Jonas Keller. The chair opened the meeting at 10:15. Paul Weber reported that the repair of the "
    "bridge will cost 248,000 euros, which is 31,500 euros more than planned. Clara Neumann asked whether the work can "
    "be finished before the winter."
)
BEGINNING = 60  # characters


@dataclass
class DraftsOptions:
    """What is measured."""

    repeats: bool = option(True, "ask for the text once more, after it")
    draft_tokens: int = option(4, "tokens that are guessed at a time", unit="tokens", low=1, high=64)
    temperature: float = option(0.0, "0: greedy", low=0.0)
    tokens: int = option(80, "tokens to write", unit="tokens", low=1)
    turns: int = option(3, "turns of each", low=1)


@program("docs/course/24-order/drafts.py", DraftsOptions, "MODEL DRAFT", "smollm2 lookup")
def main(options: DraftsOptions, path: str, draft: str) -> None:
    """Measure how much a draft helps a GPT."""
    trained = load_trained(Path(path))
    model, prompt = trained.make_model(), TEXT[:BEGINNING]
    if options.repeats:
        prompt = f"{TEXT}\n\nThe same text again, word by word:\n\n{prompt}"
    room = max(1, model.config.block_size - options.tokens)
    ids = trained.tokenizer.encode(trained.tokenizer.prepare(prompt))[-room:]
    settings = {"temperature": options.temperature, "draft": draft, "draft_tokens": options.draft_tokens}
    given = ShelfSampleOptions(**settings)
    writers = model, with_draft(given, trained, model, ())
    times = [[seconds(writer, ids, options.tokens, given) for writer in writers] for _ in range(options.turns)]
    plain, ratio = min(one for one, _ in times), statistics.median(one / other for one, other in times)
    show(f"{options.tokens / plain:,.0f} tokens per second without a draft; with it {ratio:.2f} times as many")
    show(writers[1].summary())


def seconds(writer, ids: Sequence[int], count: int, options: ShelfSampleOptions) -> float:
    """How long it takes to write some tokens, once the prompt is read."""
    first = writer.start([ids])
    began = time.perf_counter()
    for _ in generate(writer.step, *first, max_new_tokens=count, sampling=options.sampling()):
        pass
    return time.perf_counter() - began


if __name__ == "__main__":
    run_command("drafts", main)
