"""The output of a run with the options of the shelf: checkpoints of several steps are kept; a full disk may end it."""

from training.checkpoint import Checkpoint, save_file
from training.log import RunLog


class ShelfLog(RunLog):
    """The files and the progress bar of a run."""

    def write_last(self, step: int, checkpoint: Checkpoint) -> None:
        """Write the checkpoint of this step, and keep copies of the latest `--keep` of them."""
        super().write_last(step, checkpoint)
        path = self.folder.path / f"step-{step:08d}.safetensors"
        if number := self.options.keep:
            if not path.exists():  # a resumed run evaluates again where it stopped
                save_file(path, self.folder.last.read_bytes())
            for old in self.folder.kept()[:-number]:
                old.unlink(missing_ok=True)

    def curve(self, rows: int = 1) -> list[str]:
        """The training loss as a curve, with `--curve` always of eight lines."""
        return super().curve(8 if self.options.curve else rows)

    def may_continue(self, step: int) -> bool:
        """Whether training continues if a write of this step fails."""
        return super().may_continue(step) and not self.options.stop_on_disk_error
