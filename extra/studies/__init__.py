"""What can be found out about a model: small programs, pictures, and the page of `--explain`."""

from pathlib import Path

from training.cli.doorstep import check_python, moved

check_python("a study")

# What serves one page is a script beside it.
BESIDE_PAGES = """
    course/14-today/longer course/15-inside/damage course/17-encoders/accuracy course/18-adapting/quantized
    course/18-adapting/update course/19-together/together extra/compare_tokenizers extra/invented extra/questions
"""
SCRIPTS = {Path(script).name: f"docs/{script}.py" for script in BESIDE_PAGES.split()}
for name, script in SCRIPTS.items():
    for old in ("studies", "extra.studies"):
        moved(f"{old}.{name}", script)
