"""Load a trained GPT from a checkpoint or a run's folder."""

from gpt.family import FAMILY

load_trained = FAMILY.read
