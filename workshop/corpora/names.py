"""The names of pictures, parallel corpora and conversations. Options need them without what makes these data sets."""

CHAT = "chat"
PICTURES = ("digits", "mnist-5k", "fashion-mnist")
PARALLEL_CORPORA = (
    *("everyday", "auf-deutsch", "ding-sentences", "ding", "libreoffice-help", "debian-descriptions"),
    *("debian-descriptions-fr", "debian-summaries", "multi30k", "tatoeba"),
)
