"""The explorer: a page in which a trained GPT runs in JavaScript, and shows what it computes.

    python sample.py out/goethe --start "Habe nun, ach!" --explain page.html

`panels.py` says what the page shows, `build.py` hands over the model, `recorded.py` what a model computed that is too
large for the page. In the page, `model.js` is the forward pass, `tokenizer.js` cuts text, `sampling.js` filters and
draws, `counting.js` is the n-gram model, and `session.js` holds what all panels look at; each other file is a panel.
"""
