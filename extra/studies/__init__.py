"""What can be found out about a model: small programs, pictures, and the page of `--explain`."""

from training.cli.doorstep import check_python, moved

check_python("a study")

# Experiments of a chapter are scripts beside it.
IN_COURSE = "14-today/longer 15-inside/damage 17-encoders/accuracy 18-adapting/quantized 18-adapting/update".split()
IN_COURSE += ["19-together/together"]
for script in IN_COURSE:
    for old in ("studies", "extra.studies"):
        moved(f"{old}.{script.split('/')[1]}", f"docs/course/{script}.py")
