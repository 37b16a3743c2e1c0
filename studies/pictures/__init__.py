"""Pictures of what a model is made of and does; a model family hands over arrays, and the modules here draw them.

`python -m studies.draw` and `python -m studies.draw_translation` are the commands; docs/pictures.md shows each with its
picture.
"""
