"""Laws of the words in the code, by the syntax trees."""

import pytest
from source import docstrings, python_files, variables

PLACES = ["bert_jax", "benchmarks", "configs", "examples", "tests", "train.py"]
# Relative clauses as subjects are hard to read.
FIRST_WORDS = {"What", "Which", "Where", "How", "Whether", "Those", "Who"}
# Participles and pronouns that name nothing.
NO_NAMES = {"found", "said", "told", "asked", "its", "given", "kept"}


@pytest.mark.parametrize("folder", PLACES)
def test_no_docstring_begins_with_a_relative_clause(folder):
    places = [
        place
        for path in python_files(folder)
        for place, text in docstrings(path)
        if text.split()[0].strip(",.:`") in FIRST_WORDS
    ]
    assert not places


@pytest.mark.parametrize("folder", PLACES)
def test_no_variable_has_a_name_that_names_nothing(folder):
    places = [
        f"{place} {name}"
        for path in python_files(folder)
        for place, name in variables(path)
        if name in NO_NAMES
    ]
    assert not places
