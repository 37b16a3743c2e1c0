"""A GPT of pictures."""
