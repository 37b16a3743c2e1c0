"""The family of encoders for text, for train.py and sample.py: hidden words, and labels."""

from __future__ import annotations

from encoder import bert_layout
from encoder.bert import Bert, without_head
from encoder.config import BertConfig
from encoder.labels import LabelsTask
from encoder.options import BertOptions
from encoder.words import WordsTask
from tinygrad_lite.corpora.minilm import FOLDER as MINILM_FOLDER
from tinygrad_lite.corpora.minilm import NAME as MINILM
from tinygrad_lite.corpora.minilm import minilm_folder
from tinygrad_lite.tokenizers.base import Tokenizer
from tinygrad_lite.training.family import Family, Task

LAYOUTS = dict.fromkeys(bert_layout.TITLES, bert_layout)  # by model_type


def make_task(options: BertOptions, tokenizer: Tokenizer | None = None) -> Task:
    """The task of the options' objective."""
    return (LabelsTask if options.objective == "labels" else WordsTask)(options, tokenizer)


FAMILY = Family(
    name="bert",
    title="BERT",
    about="Train an encoder on text: to predict hidden words, or labels.",
    examples={
        "python train.py bert-goethe": "hidden words of Goethe, seven minutes on two cores",
        "python train.py bert-reviews": "hidden words of film reviews",
        "python train.py classify --init_from out/bert-reviews": "then: is a review positive?",
    },
    preset="bert-goethe",
    options=BertOptions,
    config=BertConfig,
    model=Bert,
    task=make_task,
    adapt=without_head,
    layouts=LAYOUTS,
    fetched={MINILM: (MINILM_FOLDER, minilm_folder)},
)
