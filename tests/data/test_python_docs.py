import itertools
import subprocess
import sys

import pytest

from bert_jax.data import python_docs

STORY = [f"Part number {word} tells how it rains." for word in "abcdefghijklmnop"]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A folder that stands for all that is installed."""
    monkeypatch.setattr(python_docs, "_folders", lambda: [str(tmp_path)])
    monkeypatch.setattr(python_docs, "_topics", lambda: iter(()))
    return tmp_path


def test_the_installed_documentation_is_prose_in_many_documents():
    documents = list(itertools.islice(python_docs._fresh_documents(), 300))
    text = " ".join(sentence for document in documents for sentence in document)
    assert len(documents) == 300 and min(map(len, documents)) >= 4
    assert len(text) > 200_000
    assert ">>>" not in text and "::" not in text and ":func:" not in text
    assert sum(map(str.isalpha, text)) > 0.77 * len(text)


def test_documents_are_the_same_on_every_run():
    code = """
import hashlib, itertools
from bert_jax.data import python_docs
text = repr(list(itertools.islice(python_docs._fresh_documents(), 90)))
print(hashlib.sha256(text.encode()).hexdigest())
"""
    runs = [
        subprocess.check_output(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}
        )
        for seed in "12"
    ]
    assert runs[0] == runs[1]


def test_sources_are_read_and_never_run(package):
    docstring = " ".join(STORY[:4])
    (package / "bad.py").write_text(f'"""{docstring}"""\nraise SystemExit\n')
    (package / "broken.py").write_text("def (:\n")
    (package / "null.py").write_bytes(b"a = '\0'\n")
    (package / "tests").mkdir()
    (package / "tests" / "other.py").write_text(f'"""{docstring} And more of it."""')
    assert list(python_docs._fresh_documents()) == [tuple(STORY[:4])]


def test_a_class_is_a_document_and_short_functions_share_one(package):
    method = " ".join(STORY[4:9])
    (package / "a.py").write_text(
        f'"""{STORY[9]}"""\n'
        f'class A:\n    """{" ".join(STORY[:4])}"""\n'
        f'    def a(self):\n        """{method}"""\n'
        f'def b():\n    """{STORY[10]}"""\n    def inner(): "{STORY[11]}"\n'
        f'async def c():\n    """{STORY[12]} {STORY[13]}"""\n'
    )
    rest = (STORY[9], STORY[10], STORY[12], STORY[13])
    assert list(python_docs._fresh_documents()) == [tuple(STORY[:9]), rest]


def test_add_newdoc_is_a_docstring(package):
    text = " ".join(STORY[:5])
    (package / "a.py").write_text(f'add_newdoc("a.b", "c", ("d", """{text}"""))\n')
    assert list(python_docs._fresh_documents()) == [tuple(STORY[:5])]


def test_a_copied_sentence_is_kept_once(package):
    copied, shouted = STORY[:4], STORY[0].upper()
    for name, texts in [("a", copied), ("b", [*copied, *STORY[5:9], shouted])]:
        (package / f"{name}.py").write_text(f'"""{" ".join(texts)}"""')
    assert list(python_docs._fresh_documents()) == [
        tuple(copied),
        tuple(STORY[5:9]),
    ]


def test_fewer_than_four_sentences_are_no_document(package):
    (package / "a.py").write_text(f'"""{" ".join(STORY[:3])}"""')
    assert list(python_docs._fresh_documents()) == []


def test_a_python_without_sources_gives_no_documents(monkeypatch, tmp_path):
    monkeypatch.setattr(python_docs.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(python_docs.importlib.util, "find_spec", lambda _: None)
    assert list(python_docs._fresh_documents()) == []


NUMPY = """
    Return the weather of a list of towns.

    The weather is taken from ``towns`` by :func:`~rain.look` and is *never*
    older than an hour [1]_; see `the manual <https://a.org>`_ of it.

    Parameters
    ----------
    towns : array_like
        The towns to look at, which
        must have a name.
    depth : int, optional

    Returns
    -------
    weather : ndarray

    See Also
    --------
    snow : Return the snow of a list of towns.

    Notes
    -----
    .. versionadded:: 1.2

    .. note:: Fog counts as rain in
       every one of them.

    .. math:: x = \\sum_i y_i

        This is a part of the formula above.

    It follows that :math:`x` is one of the sums::

        This is code, and it looks like a sentence.

    - The first point of a list
      goes on here.
    - The second point is short enough.

    ====  =====
    town  rain
    ====  =====

    References
    ----------
    .. [1] Somebody, "A book on rain and towns." Press.

    Examples
    --------
    Look at all towns of one country:

    >>> weather(["Rome"])
    Nothing of this is a sentence here.
    """

GOOGLE = """Computes the weather of a town.

  Args:
    town: The town to look at, which must
      have a name.
    *others: More towns that are looked at.

  Returns:
    The weather as a list of words.
  """


def test_of_a_numpy_docstring_the_prose_is_left():
    assert python_docs.prose(NUMPY) == [
        "Return the weather of a list of towns.",
        "The weather is taken from towns by rain.look and is never older than an "
        "hour; see the manual of it.",
        "The towns to look at, which must have a name.",
        "Fog counts as rain in every one of them.",
        "The first point of a list goes on here.",
        "The second point is short enough.",
        "Look at all towns of one country:",
    ]


def test_of_a_google_docstring_the_prose_is_left():
    assert python_docs.prose(GOOGLE) == [
        "Computes the weather of a town.",
        "The town to look at, which must have a name.",
        "More towns that are looked at.",
        "The weather as a list of words.",
    ]
