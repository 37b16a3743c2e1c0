"""The models' settings and options with what the shelf adds to them, where that is."""

try:
    from extra.gpt.config import GPTConfig
    from extra.gpt.options import GPTOptions
    from extra.gpt.trained import load_trained
    from extra.seq2seq.config import Seq2SeqConfig
    from extra.seq2seq.options import Seq2SeqOptions
except ImportError:
    from gpt.config import GPTConfig
    from gpt.options import GPTOptions
    from gpt.trained import load_trained
    from seq2seq.config import Seq2SeqConfig
    from seq2seq.options import Seq2SeqOptions

__all__ = ["GPTConfig", "GPTOptions", "Seq2SeqConfig", "Seq2SeqOptions", "load_trained"]
