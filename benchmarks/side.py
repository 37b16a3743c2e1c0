"""A child process of the benchmarks: one side with one task, which answers questions on its stdin.

    python -m benchmarks.side ours train small 2
    python -m benchmarks.side torch-malloc write baby 0

`rows.py` starts these. The first question is {}; the reply, facts for the reader, comes when everything is ready.
"""

from contextlib import ExitStack
from typing import Any

from benchmarks.children import serve
from training.cli.console import run_command


def main(argv: list[str]) -> int:
    """Prepare, then answer until stdin ends. The arguments: side, task, shape, workers of our side."""
    side, work, shape, workers = argv
    with ExitStack() as until_end:
        if side == "ours":
            from benchmarks.our_side import prepare

            repeat, facts = prepare(work, shape, int(workers), until_end)
        else:
            from benchmarks.torch_side import prepare as prepare_torch

            repeat, facts = prepare_torch(work, shape, side)

        def reply(question: dict[str, Any]) -> dict[str, Any]:
            """Do the task as often as requested."""
            if not question:
                return {"facts": facts}
            done = [repeat(question["begin"] + i) for i in range(question["repeats"])]
            return {"values": [one["value"] for one in done], "losses": [one["loss"] for one in done if "loss" in one]}

        serve(reply)
    return 0


if __name__ == "__main__":
    run_command("benchmarks", main)
