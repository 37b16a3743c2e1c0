"""Record the curves with which `python -m extra.studies.diagnose` compares all runs: those of three presets.

    python docs/record.py out/reverse out/goethe-char out/goethe

writes extra/studies/curves.csv: at each evaluation the losses, and the stage, which symptoms.md explains.
"""

from pathlib import Path

from extra.studies.diagnose import CURVES, read_run
from extra.studies.program import NoOptions, program, write_lines
from training.cli.console import run_command


@program("docs/record.py", NoOptions, "RUN ...", "out/goethe", about_positional="folders of runs")
def main(_: NoOptions, *names: str) -> None:
    """Write curves.csv, the table of runs that all others are compared with."""
    lines = ["name,optimizer,rate,max_iters,step,loss,val_loss,stage"]
    for name, run in zip(names, map(read_run, names), strict=True):
        settings = f"{Path(name).name},{run.options.optimizer},{run.rates[1].max():.2g},{run.options.max_iters}"
        for step, loss in run.validation.T:
            lines.append(f"{settings},{step:.0f},{run.learned(step):.3f},{loss:.3f},{run.stage(loss):.3f}")
    write_lines(CURVES, lines)


if __name__ == "__main__":
    run_command("record", main)
