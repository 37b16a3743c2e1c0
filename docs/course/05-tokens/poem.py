"""The text of chapter 4, from that chapter's folder."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

spec = spec_from_file_location("letters", Path(__file__).parents[1] / "04-letters" / "letters.py")
letters = module_from_spec(spec)
spec.loader.exec_module(letters)
TRAIN, HELD_OUT = letters.TRAIN, letters.HELD_OUT
