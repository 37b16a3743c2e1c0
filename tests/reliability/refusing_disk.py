"""train.py on its own small disk, which becomes full or read-only at some step, and perhaps writable again later.

    unshare --mount python tests/reliability/refusing_disk.py full 5 9 FOLDER [options of train.py]

The disk is in memory, visible to this process only, and ends with it; the run is copied to FOLDER first. Here the disk
refuses writes after 5 updates and accepts them again after 9.
"""

import shutil
import subprocess
import sys
from pathlib import Path

KIB = 400


def main() -> int:
    import train
    from tests.reliability.disturbed import at_steps

    kind, refuse, relent, folder, *words = sys.argv[1:]
    disk = Path("disk")
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={KIB}k", "none", disk], check=True)
    try:
        with at_steps({int(refuse): lambda: change(disk, kind), int(relent): lambda: change(disk, "writable")}):
            return train.main([*words, "--out_dir=disk/run"])
    except train.UserError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.copytree(disk / "run", folder)


def change(disk: Path, kind: str) -> None:
    """Fill the disk to the last byte, or make it read-only, or undo both."""
    if kind == "full":
        with open(disk / "filler", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1024))
            except OSError:
                pass
    elif kind == "writable":
        if (disk / "filler").exists():
            (disk / "filler").unlink()
        else:
            subprocess.run(["umount", disk], check=True)
    else:  # mounted over itself, since files may still be open for writing below
        subprocess.run(["mount", "--bind", disk, disk], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", disk], check=True)


if __name__ == "__main__":
    sys.exit(main())
