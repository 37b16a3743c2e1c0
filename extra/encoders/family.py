"""Encoders, which read a whole text or picture at once, as families of models for train.py and sample.py."""

from extra.encoders import looking, minilm, reading
from extra.encoders.bert import Bert, without_head
from extra.encoders.cnn import CNN as ConvNet
from extra.encoders.cnn import CNNConfig
from extra.encoders.config import BertConfig
from extra.encoders.labels import LabelsTask
from extra.encoders.options import BertOptions
from extra.encoders.pictures import CNNOptions, PicturesTask, ViTOptions
from extra.encoders.vit import ViT, ViTConfig
from extra.encoders.words import WordsTask
from extra.pretrained import bert, vit
from extra.tokenizers.others import register
from text.tokenizers.base import Tokenizer
from training.family import Family, Task


def make_task(options: BertOptions, tokenizer: Tokenizer | None = None) -> Task:
    """What an encoder of text learns: hidden words, or labels."""
    return (LabelsTask if options.config.objective == "labels" else WordsTask)(options, tokenizer)


register()
BERT = Family(
    name="bert",
    title="BERT",
    about="Train an encoder on text: to predict hidden words, or labels.",
    examples={
        "python train.py bert-goethe": "hidden words of Goethe, seven minutes on two cores",
        "python train.py bert-reviews": "hidden words of film reviews",
        "python train.py classify --init_from out/bert-reviews": "then: is a review positive?",
    },
    preset="bert-goethe",
    config=BertConfig,
    model=Bert,
    options=BertOptions,
    task=make_task,
    speak=reading.speak,
    adapt=without_head,
    layouts={"bert": bert.LAYOUT},
    fetched={"minilm": minilm},
)

VIT = Family(
    name="vit",
    title="the Vision Transformer",
    about="Train a Vision Transformer to say what is in a picture.",
    examples={
        "python train.py vit-digits": "handwritten digits, a minute on two cores",
        "python train.py vit-fashion": "pieces of clothing, eight minutes on two cores",
    },
    preset="vit-digits",
    config=ViTConfig,
    model=ViT,
    options=ViTOptions,
    task=PicturesTask,
    speak=looking.speak,
    layouts={"vit": vit.LAYOUT},
)

CNN = Family(
    name="cnn",
    title="the convolutional network",
    about="Train a convolutional network to say what is in a picture.",
    examples={
        "python train.py cnn-digits": "handwritten digits",
        "python train.py cnn-fashion": "pieces of clothing, seven minutes on two cores",
    },
    preset="cnn-digits",
    config=CNNConfig,
    model=ConvNet,
    options=CNNOptions,
    task=PicturesTask,
    speak=looking.speak,
)
