"""The families of models that train.py and sample.py know: a new family is a new line here. The shelf has more."""

from importlib.util import find_spec

if find_spec("extra"):
    from extra.families import FAMILIES
    from extra.mpi.mpirun import on_all_ranks as around
else:
    from gpt.family import FAMILY as GPT
    from seq2seq.family import FAMILY as SEQ2SEQ

    # By the name in presets and checkpoints; the first is used by a command that names none.
    FAMILIES = {family.name: family for family in (GPT, SEQ2SEQ)}

    def around(main):
        """What is done around a command's main function."""
        return main


__all__ = ["FAMILIES", "around"]
