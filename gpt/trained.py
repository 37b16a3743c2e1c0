"""Load a trained GPT: from a checkpoint, a run's folder, a folder in Hugging Face's layout, or by the name smollm2."""

from gpt.family import FAMILY

load_trained = FAMILY.load
