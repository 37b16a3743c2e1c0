"""The families of models: the table that train.py and sample.py read. A new family is a new line here."""

from extra.encoders.family import BERT, CNN, VIT
from gpt.family import FAMILY as GPT
from seq2seq.family import FAMILY as SEQ2SEQ

# By the name in presets and checkpoints; the first is used by a command that names none.
FAMILIES = {family.name: family for family in (GPT, SEQ2SEQ, BERT, VIT, CNN)}
