"""Pictures of a model's parts and what they do; a model family supplies arrays, and the modules here plot them.

`python -m studies.draw` and `python -m studies.draw_translation` are the commands; docs/pictures.md shows each with its
picture.
"""
