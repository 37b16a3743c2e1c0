"""Translation before the Transformer: one recurrent network reads, another writes, and attention joins them.

    source (B, S) -> embedding -> n_layer recurrent layers -> memory (B, S, C), and the last state of each layer
    target (B, T) -> embedding -> n_layer recurrent layers, starting from these states -> h_t
                                  a_t = softmax(score(h_t, memory))      which source tokens matter now      (S)
                                  c_t = sum_s a_ts memory_s              their mean
                                  v_t = tanh(Wc (c_t, h_t))              the attentional vector
                                  logits = v_t E^T

With `--attend none` v_t is h_t: all that the decoder knows of the sentence is the state with which it begins, of the
same size for short and long sentences. Attention was invented to widen this bottleneck. How positions are scored, and
which ones:

    --score dot         h_t . m_s
    --score general     h_t . (Wa m_s)
    --score additive    va . tanh(Wa (h_t, m_s))          Bahdanau's; Luong calls it concat

    --attend global         all source tokens
    --attend monotonic      those within D of position t
    --attend predictive     those within D of p_t = S s(vp . tanh(Wp h_t)), weighted by exp(-(s - p_t)^2 / (2 (D/2)^2))

With `--input_feeding` the decoder reads v_(t-1) with token t, so it knows what it attended to before. Then no step can
begin before the previous one has ended, in training too; without it, each layer reads all steps of the layer below at
once.

The source is read backwards, as in Sutskever et al. 2014: then the first words, with which most translations begin, are
the last that the encoder reads.

References: Luong, Pham, Manning 2015 (arXiv:1508.04025), sections 2 and 3, eq. 1 to 10; Bahdanau, Cho, Bengio 2015
(arXiv:1409.0473); Sutskever, Vinyals, Le 2014 (arXiv:1409.3215).
"""

import math

import numpy as np

from extra.mixers.recurrent import RECURRENT, RecurrentState
from extra.seq2seq.config import Seq2SeqConfig
from seq2seq.model import Memory, Seq2Seq
from tinygrad_lite.generator import GenerationState
from tinygrad_lite.nn import Dropout, Embedding, Linear, Module
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import init_gpt2


class Alignment(Module):
    """The weights with which decoder states attend to the memory, and the attentional vectors."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        width, self.attend, self.score = config.n_embd, config.attend, config.score
        self.reach = config.attention_reach
        if self.score == "general":
            self.match = Linear(width, width, bias=False)
        elif self.score == "additive":
            self.of_state, self.of_memory = (Linear(width, width, bias=False) for _ in range(2))
            self.match = Linear(width, 1, bias=False)
        if self.attend == "predictive":
            self.place, self.place_score = Linear(width, width, bias=False), Linear(width, 1, bias=False)
        self.join = Linear(2 * width, width, bias=False)

    def forward(self, h: Tensor, memory: Tensor, mask: Tensor, past: int) -> Tensor:
        """The attentional vectors: states (B, T, C), memory (B, S, C), mask (B, 1, S) -> (B, T, C)."""
        context = self.weights(h, memory, mask, past) @ memory
        return self.join(context.cat(h, axis=-1)).tanh()

    def weights(self, h: Tensor, memory: Tensor, mask: Tensor, past: int) -> Tensor:
        """(B, T, S), each row of which adds up to 1, or to less with predictive attention.

        Args:
            past: the number of target tokens before h.
        """
        scores = self.scores(h, memory)
        if self.attend == "global":
            return scores.masked_fill(~mask, -math.inf).softmax(-1)
        sources = Tensor(np.arange(memory.shape[1], dtype=h.dtype), device=h.device)
        lengths = mask.cast(h.dtype).sum(-1, keepdim=True)  # (B, 1, 1)
        if self.attend == "monotonic":
            t = Tensor(np.arange(past, past + h.shape[1], dtype=h.dtype), device=h.device).reshape(1, -1, 1)
            centre = t.minimum(lengths - 1)  # past the end of the source, its last token
        else:
            centre = lengths * self.place_score(self.place(h).tanh()).sigmoid()  # (B, T, 1)
        distance = sources - centre
        near = (distance.detach().abs() <= self.reach) & mask
        weights = scores.masked_fill(~near, -math.inf).softmax(-1)
        if self.attend == "predictive":
            weights = weights * (distance**2 * (-2 / self.reach**2)).exp()
        return weights

    def scores(self, h: Tensor, memory: Tensor) -> Tensor:
        """How well each state matches each position of the memory: (B, T, C), (B, S, C) -> (B, T, S)."""
        if self.score == "additive":
            pairs = self.of_state(h).unsqueeze(2) + self.of_memory(memory).unsqueeze(1)  # (B, T, S, C)
            return self.match(pairs.tanh()).squeeze(-1)
        return h @ (self.match(memory) if self.score == "general" else memory).transpose(1, 2)


class RecurrentSeq2Seq(Seq2Seq):
    """Luong's encoder-decoder, with one embedding for source, target and output."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        self.config = config
        width, layer = config.n_embd, RECURRENT[config.mixer]
        self.token_embedding = Embedding(config.vocab_size, width)
        self.dropout = Dropout(config.dropout)
        self.encoder = [layer(width, width) for _ in range(config.n_layer)]
        first = 2 * width if config.input_feeding else width
        self.decoder = [layer(width if number else first, width) for number in range(config.n_layer)]
        self.alignment = Alignment(config) if config.attend != "none" else None
        self.lm_head = Linear(width, config.vocab_size, bias=False)
        self.lm_head.weight = self.token_embedding.weight
        init_gpt2(self, config.n_layer)

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The memory (B, S, C) of padded sentences (B, S), the mask (B, 1, S) of text, and a state for each layer.

        Positions are those of the source, though it is read backwards.
        """
        mask = source != self.config.pad
        x, states, backwards = self._embed(source.flip(1), 0), [], mask.flip(1)
        for layer in self.encoder:
            both = layer.run(x, None, backwards)  # padding comes first now, and leaves the state at 0
            states.append(both[:, -1])
            x = self.dropout(both[..., : self.config.n_embd])
        return x.flip(1), mask.unsqueeze(1), states

    def decode(
        self, target: Tensor, memory: Tensor, mask: Tensor, states: list[Tensor], past: int = 0
    ) -> tuple[Tensor, list[Tensor]]:
        """The logits of the token that follows each position, (B, T) -> (B, T, V), and the states after the last.

        Args:
            states: of each layer before the first position, followed by the attentional vector with input feeding.
            past: the number of target tokens before these.
        """
        x, steps, vectors = self._embed(target, past), target.shape[1], []
        fed = self.config.input_feeding
        if fed and len(states) == self.config.n_layer:
            states = [*states, Tensor.zeros_like(x[:, 0])]
        for t in range(steps if fed else 1):
            now = x[:, t : t + 1].cat(states[-1].unsqueeze(1), axis=-1) if fed else x
            after = []
            for layer, state in zip(self.decoder, states, strict=False):
                both = layer.run(now, state)
                after.append(both[:, -1])
                now = self.dropout(both[..., : self.config.n_embd])
            vectors.append(self.alignment(now, memory, mask, past + t) if self.alignment else now)
            states = [*after, vectors[-1][:, -1]] if fed else after
        return self.lm_head(self.dropout(vectors[0].cat(*vectors[1:], axis=1))), states

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.decode(target, *self.encode(source))[0]

    def memory_of(self, source: Tensor, use_cache: bool) -> Memory:
        """What the encoder makes of padded sentences (B, S), with its last states."""
        memory, mask, states = self.encode(source)
        return Memory(memory, mask, None, states)

    def new_caches(self, capacity: int | None = None) -> list[RecurrentState]:
        """A state for each layer, and one for the attentional vector if it is fed back."""
        return [RecurrentState() for _ in range(self.config.n_layer + self.config.input_feeding)]

    def predict(self, ids: Tensor, state: GenerationState) -> Tensor:
        """The logits after each of ids (B, n): see `tinygrad_lite/generator.py`."""
        memory, caches = state.memory, state.caches
        past = caches[0].length if caches else 0
        before = [cache.state for cache in caches] if past else memory.states
        logits, after = self.decode(ids, memory.values, memory.mask, before, past)
        for cache, new in zip(caches or [], after, strict=bool(caches)):
            cache.length, cache.state = past + ids.shape[1], new
        return logits
