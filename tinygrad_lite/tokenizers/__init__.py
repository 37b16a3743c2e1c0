"""From text to token ids and back: characters, bytes, words, byte pairs."""
