"""A GPT with what the shelf adds to it, where that is."""

try:
    from extra.gpt.config import GPTConfig
    from extra.gpt.options import GPTOptions
    from extra.gpt.trained import load_trained
except ImportError:
    from gpt.config import GPTConfig
    from gpt.options import GPTOptions
    from gpt.trained import load_trained

__all__ = ["GPTConfig", "GPTOptions", "load_trained"]
