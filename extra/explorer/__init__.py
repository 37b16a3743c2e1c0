"""Pages that show a model from inside: one HTML file each, without a framework or a network.

    python sample.py out/goethe --start "Habe nun, ach!" --explain page.html

`page.py` assembles a page. `gpt.py` supplies a GPT, `translation.py` a translation, `encoders.py` what BERT or a Vision
Transformer reads; `panels.toml` has the texts of all panels. The page of a GPT runs in JavaScript: `model.js` is the
forward pass, `tokenizer.js` cuts text, `sampling.js` filters and draws, `counting.js` is the n-gram model, `session.js`
holds what all panels look at, and `talk.js` a conversation; every other file is a panel.

`learning.py` writes a page without a model: one is trained in it. `nano.js` is nano.py in JavaScript, `derivatives.js`
its functions, `training.js` the loop; `learning.js` and `watching.js` are the panels.
"""
