"""From probabilities to text: greedy, sampling, beam search. Nothing here knows a model, only its `step`."""
