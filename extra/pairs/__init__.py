"""A GPT that answers: questions and answers, or translations, as one text; and teachers."""
