"""A test fails if the code that it tests does nothing: for all test functions of the default suite; see stubbed.py."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.tiny_runs import ROOT

# What may pass without that code, by the beginnings of the names of tests.
CALLS_NOTHING = {
    "read pages, sources or settings of the project": """
        extra/reports/ extra/test_course.py extra/test_docs.py extra/test_how_to.py extra/test_pictures.py
        extra/test_readme.py extra/test_site.py reliability/test_supply.py test_imports.py test_language.py
        test_rings.py test_course.py::test_code_that_a_chapter_quotes test_platforms.py::test_lines_end_in_lf
        extra/explorer/test_gpt.py::test_the_page_knows
        extra/museum/test_museum.py::test_every_exhibit_is_complete
        extra/museum/test_museum.py::test_the_page tinygrad_lite/test_writing.py::test_the_page_has
    """,
    "compare tables and signatures, which a module has as soon as it is imported": """
        extra/corpora/test_pairs.py::test_multi30k extra/corpora/test_texts.py::test_every_corpus_has_a_hash
        extra/test_options.py::test_the_names
        extra/test_versions.py::test_every_stored_run test_train.py::test_options_of_the_same_name
        tinygrad_lite/cuda/test_compile.py::test_every_kernel tinygrad_lite/debug/test_anomaly.py::test_every_name
        tinygrad_lite/functional/test_registry.py::test_an_operation_has_the_docstring
        tinygrad_lite/functional/test_registry.py::test_every_operation_has_cases
        tinygrad_lite/functional/test_registry.py::test_both_versions_have_the_same_defaults
        gpt/test_config.py::test_settings_have_these_defaults
        tinygrad_lite/test_names.py::test_everything_public tinygrad_lite/test_names.py::test_no_wrapper
        tinygrad_lite/test_ops.py::test_every_operation_is_in tinygrad_lite/test_optim.py::test_each_round
        tinygrad_lite/test_quantize.py::test_the_levels training/test_options.py::test_every_option
    """,
    "look at a file that the fixture has made": "training/test_checkpoint.py::test_a_checkpoint_contains_neither",
    "start a script that ends before it calls a function": """
        test_platforms.py::test_before_the_installation test_platforms.py::test_an_older_python
    """,
    "load nano.py again": "test_nano.py::test_a_text_that_it_cannot_use test_nano.py::test_without_a_home_folder",
    "test tools of the tests": "mutation/test_mutants.py:: test_standin.py::",
}
GETS_NOTHING = {
    "test what Python's own objects do, or defaults, which are attributes of a class": """
        extra/test_torch_names.py::test_a_typing_error tinygrad_lite/test_tensor.py::test_a_tensor_can_be_in_sets
    """,
}


def reason(table: dict[str, str], name: str) -> str:
    """Why a test is in one of the tables, or ""."""
    return next((why for why, names in table.items() if name.startswith(tuple(names.split()))), "")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_every_test_depends_on_the_code_that_it_tests(tmp_path, report):
    file = tmp_path / "outcomes.json"
    words = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "tests.reliability.stubbed", "tests"]
    settings = os.environ | {"STUBBED_OUTCOMES": str(file)}
    done = subprocess.run(words, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    counts, hollow = Counter(), []
    for name, said in json.loads(file.read_text(encoding="utf-8")).items():
        name = name.removeprefix("tests/")
        outcome, stubs = said.split()
        why = outcome if outcome != "passed" else reason(CALLS_NOTHING if stubs == "0" else GETS_NOTHING, name)
        counts[why] += 1
        hollow += [] if why else [f"{name}: {said}"]
    report(f"without the code under test: {dict(counts)} test functions")
    assert not hollow, "\n".join(hollow)
    assert counts["failed"] > 20 * counts["ended"]  # by hanging, or because the stubs could not be installed
