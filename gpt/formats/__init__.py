"""Other programs' layouts of settings and weights of GPTs: modules that translate them into ours and back."""

from types import ModuleType

from gpt.config import GPTConfig
from gpt.formats import gpt2, llama


def layout_of(config: GPTConfig) -> ModuleType:
    """The layout in which a model with these settings is exported: that of a Llama if it has RMS norms."""
    return llama if config.norm == "rmsnorm" else gpt2
