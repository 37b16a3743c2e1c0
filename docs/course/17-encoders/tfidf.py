"""What counting words achieves: TF-IDF of words and pairs of words, and logistic regression (needs scikit-learn).

    python docs/course/17-encoders/tfidf.py reviews     texts with labels, by name or a CSV file

The strength of the regularisation is the one of five that is best on the validation part.
"""

import sys
from pathlib import Path

from extra.corpora.tables import load_labelled
from training.cli.console import run_command


def main(argv: list[str]) -> int:
    """Print the accuracy on the validation part and on the test part."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    data = load_labelled(argv[0] if argv else "reviews")
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit([text for text, _ in data.train])
    texts, labels = zip(*(zip(*part, strict=True) for part in (data.train, data.validation, data.test)), strict=True)
    train, validation, test = map(words.transform, texts)
    models = [LogisticRegression(C=strength, max_iter=1000).fit(train, labels[0]) for strength in (1, 3, 10, 30, 100)]
    best = max(models, key=lambda model: model.score(validation, labels[1]))
    print(f"validation {best.score(validation, labels[1]):.1%}, test {best.score(test, labels[2]):.1%} (C = {best.C})")
    return 0


if __name__ == "__main__":
    run_command(Path(sys.argv[0]).name, main, __doc__)
