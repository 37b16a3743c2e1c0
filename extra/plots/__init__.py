"""Pictures of a model's parts and what they do; a model family supplies arrays, and the modules here plot them.

`python -m extra.studies.draw` is the command; docs/extra/pictures.md shows each picture.
"""
