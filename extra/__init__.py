"""The shelf: what the core can do without. Nothing of the core is here, and nobody has to read it first."""

import sys

if sys.argv[0] == "-m":  # a module of it is the program: until `run_command`, Ctrl-C ends it with a sentence
    from training.cli.doorstep import enter

    enter(next((word for word in sys.orig_argv[1:] if "extra." in word), "extra").removeprefix("-m"))
