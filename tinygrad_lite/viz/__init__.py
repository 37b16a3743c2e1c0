"""Pictures of what a model is made of and does; a model family hands over arrays, and the modules here draw them.

`python -m gpt.draw` and `python -m seq2seq.draw` are the commands; docs/pictures.md shows each with its picture.
"""
