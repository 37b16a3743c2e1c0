"""The panels of a GPT's page: what each shows, by which formula, and where it is computed."""

from __future__ import annotations

from dataclasses import replace

from gpt.config import GPTConfig
from studies.explorer.page import Panel

WHOLE = Panel(
    "whole",
    "The whole model",
    "Tokens go in on the left, and on the right come out the probabilities of the next one. The numbers are those of "
    "the token that is selected below. Each part leads to the panel that shows it.",
    "p = softmax(W norm(x)),   x = embedding + what all layers add to it",
    (("gpt/model.py", "GPT.forward"),),
)
TEXT = Panel(
    "text",
    "The text",
    "A model reads tokens, not letters: below are those of the text. Type anything, and choose a token to see in all "
    "panels what the model computed there.",
    "text -> tokens -> ids 0 .. V - 1",
    (("workshop/tokenizers/base.py", "Tokenizer.encode"),),
)
TALK = replace(
    TEXT,
    title="The conversation",
    lead="A conversation is one text with a special token after each turn: one asks for the answer, the other ends it. "
    "Type a message above and press Enter; what you type is text, even where it looks like a special token. The oldest "
    "turns are forgotten when the context has no room for them.",
    formula="question <answer> answer <end> question <answer> .. -> ids 0 .. V - 1",
    sources=(("gpt/answering.py", "turns_ids"), ("gpt/chat.py", "fitting")),
)
NEXT = Panel(
    "next",
    "What comes next",
    "After every token, the model gives each token of its vocabulary a probability. Move the sliders and see which "
    "tokens they remove; then draw one, or let it run.",
    "p = softmax(logits)     p_i after temperature T: proportional to p_i^(1/T), then top-k, top-p, min-p",
    (("gpt/model.py", "GPT.forward"), ("workshop/decoding/sampling.py", "filter_tokens"))
    + (("workshop/decoding/sampling.py", "draw"),),
)
ATTENTION = Panel(
    "attention",
    "Where it looks",
    "In every layer, each head lets a token look at the tokens before it. Choose a head, then point at a token or move "
    "there with the arrow keys: blue arcs lead to where it looks, orange ones come from those that look at it. "
    "Switch a head off to see what it was good for.",
    "P = softmax(scale Q K^T), row t over the positions 0 .. t;   head = P V;   y = (head_1, .., head_H) W",
    (("tinygrad_lite/transformer.py", "MultiHeadAttention.weights"), ("gpt/inside.py", "without_heads")),
)
STREAM = Panel(
    "stream",
    "The stream",
    "One vector for each token runs through all layers, and each part adds to it. Read early, it says what the model "
    "would predict if the remaining layers did nothing: see after which layer the answer appears.",
    "x = x + attention(norm(x));   x = x + feedForward(norm(x));   read early: softmax(norm(x) W)",
    (("gpt/inside.py", "look_inside"), ("gpt/model.py", "GPT.read")),
)
WANTED = Panel(
    "wanted",
    "Who wanted this token",
    "The logits are read from a sum: the embedding, and what every head and every feed-forward part has added. So each "
    "part has a share in a token's logit. Choose a token, and see who speaks for it and who against it.",
    "logit - mean of all = sum over the parts of part . (W_token - mean of W) / size,   size that of the whole stream",
    (("studies/explorer/wanted.js", "partsOf"), ("gpt/model.py", "GPT.read")),
)
PATCHING = Panel(
    "patching",
    "From one text into another",
    "Where does the model keep what makes the difference between two texts? Copy a single vector of the stream from "
    "the other text into this one, at each layer and position, and see how far the answer moves towards the other's.",
    "d = logit of the other answer - logit of ours;   effect = (d after patching - d) / (d of the other text - d)",
    (("studies/explorer/patching.js", "patched"), ("studies/explorer/model.js", "predict")),
)
SURPRISE = Panel(
    "surprise",
    "Surprise",
    "The bits under a character say how much the model had to be told to know it: none where it was certain. Look for "
    "tall bars at the beginnings of words, and short ones where a word completes itself.",
    "bits = -log2 p(token | tokens before it), shared evenly among the bytes of the token",
    (("gpt/score.py", "token_log_probs"), ("studies/baselines.py", "KneserNey.probability")),
)
GROWING = Panel(
    "growing",
    "Growing up",
    "The checkpoints that the run kept are in this page. Move the slider at the lower edge of the window, and watch "
    "all panels above: the same text, read by the model at each age.",
    "bits per character = sum of -log2 p(token) / characters",
    (("workshop/run/run_folder.py", "RunFolder.keep"), ("gpt/score.py", "score")),
)
# What the page of a recording says instead: nothing can be typed, drawn or switched off there.
RECORDED = {
    "text": "A model reads tokens, not letters: below are those of the text. Choose one to see in all panels what the "
    "model computed there.",
    "next": "After every token, the model gives each token of its vocabulary a probability. Choose a token above, and "
    "move the sliders to see which continuations they would remove.",
    "attention": "In every layer, each head lets a token look at the tokens before it. Choose a head, then point at a "
    "token or move there with the arrow keys: blue arcs lead to where it looks, orange ones come from those that look "
    "at it.",
}


def stream(config: GPTConfig) -> Panel:
    """The panel of the stream, with the formula of this model's blocks."""
    before, after = ("norm(x)", "{}") if config.norm_first else ("x", "norm({})")
    parts = (
        f"x + {part}({before})" if config.residual else f"{part}({before})" for part in ("attention", "feedForward")
    )
    lines = ";   ".join(f"x = {after.format(part)}" for part in parts)
    return replace(STREAM, formula=f"{lines};   read early: softmax({'norm(x)' if config.norm_first else 'x'} W)")
