"""The names of pictures and of made pairs. Options need them without the code that makes these data sets."""

CHAT, SUMS, CALCULATIONS = MADE = ("chat", "sums", "calculations")  # made by a program
PICTURES = ("digits", "mnist-5k", "fashion-mnist")
