"""The names of the pairs that a program makes. Options need them without the code that makes the pairs."""

CHAT, SUMS, CALCULATIONS = MADE = ("chat", "sums", "calculations")  # made by a program
