"""The documentation installed with Python: a corpus of English without a network.

The language reference of `pydoc_data`, and the docstrings of the standard library,
numpy, scipy and jax, read from their sources: nothing is imported. Of a docstring
only the prose is used.
"""

import ast
import functools
import importlib.util
import inspect
import itertools
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator

from bert_jax.data.sentences import split

PACKAGES = ("numpy", "scipy", "jax")
SKIPPED_FOLDERS = {
    *("test", "tests", "site-packages", "dist-packages", "__pycache__"),
    *("idlelib", "lib2to3", "turtledemo"),
}
# A class or function with so many sentences is a document; the others of a module
# make one together, if it has the smaller number.
OWN_SENTENCES = 8
FEWEST_SENTENCES = 4

_SKIPPED_SECTIONS = {"see also", "references"}
_KEPT_DIRECTIVES = {
    *("note", "warning", "tip", "hint", "important", "attention", "caution"),
    *("deprecated", "versionchanged"),
}
_UNDERLINE = re.compile(r"^\s*([-=~^*#\"'.+])\1{2,}\s*$")
_DIRECTIVE = re.compile(r"^\.\. ([\w-]+) ?::\s*[\d.]*\s*(.*)")
_ITEM = re.compile(r"^(?:[-*+•]|\(?\d+[.)])\s+")
_FIELD = re.compile(r"^(?::[^:`]+:|\*{0,2}\w+(?: \([^)]*\))?:)\s+(?=\w)")
_MARKUP = [
    (re.compile(r"\s?\[[\w#*]+\]_"), ""),
    (re.compile(r":[\w:+-]+:`[~!]?([^`]*?)(?: *<[^`<>]*>)?`"), r"\1"),
    (re.compile(r"`([^`<]+?) *<[^`]*>`__?"), r"\1"),
    (re.compile(r"`+_{0,2}|(?<=`)~"), ""),
    (re.compile(r"(?<![\w*])\*{1,2}(\w[^*]*?)\*{1,2}(?![\w*])"), r"\1"),
]
_CODE = re.compile(r"[\\|{}]|>>>|::|\w =|(?<!\w)@")
_UNSTOPPED = re.compile(r"[A-Z][\w'-]*(?:,? [\w\"'(][^\s:=]*){4,}:?$")
_ENDS_WITH_STOP = re.compile(r"""\w["”’')\]]*[.!?]["”’')\]]*$""")


@functools.cache
def documents() -> tuple[tuple[str, ...], ...]:
    """Documents of sentences, in the same order on every run; read once a process.

    A document is a topic of the language reference, a class with its methods, a long
    docstring, or the short ones of a module. A repeated sentence is dropped: the
    packages copy each other, and no held-out sentence may be in another document.
    """
    return tuple(_fresh_documents())


def _fresh_documents() -> Iterator[tuple[str, ...]]:
    seen: set[str] = set()
    for document in itertools.chain(_topics(), *map(_package, _folders())):
        fresh = tuple(text for text in document if _remember(text, seen))
        if len(fresh) >= FEWEST_SENTENCES:
            yield fresh


def prose(docstring: str) -> list[str]:
    """The sentences of a reStructuredText docstring.

    Examples, tables, formulas, headings, signatures and lists of references are
    dropped; markup inside a sentence is removed and its words are kept.
    """
    return [
        sentence
        for text in _paragraphs(inspect.cleandoc(docstring).splitlines())
        for sentence in split(_plain(text))
        if _is_prose(sentence)
    ]


def _folders() -> list[str]:
    specs = map(importlib.util.find_spec, PACKAGES)
    origins = [spec.origin for spec in specs if spec and spec.origin]
    return [sysconfig.get_path("stdlib"), *map(os.path.dirname, origins)]


def _topics() -> Iterator[list[str]]:
    if importlib.util.find_spec("pydoc_data") is None:
        return
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield prose(topics[name])


def _package(folder: str) -> Iterator[list[str]]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
        for name in sorted(files):
            if name.endswith(".py"):
                yield from _module(os.path.join(parent, name))


def _module(path: str) -> Iterator[list[str]]:
    """Yields the documents of one source file."""
    with open(path, "rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(file.read())
        except (SyntaxError, ValueError):
            return
    module = prose(ast.get_docstring(tree) or "")
    for docstrings in _groups(tree):
        document = [text for docstring in docstrings for text in prose(docstring)]
        if len(document) >= OWN_SENTENCES:
            yield document
        else:
            module += document
    yield module


def _groups(tree: ast.Module) -> Iterator[list[str]]:
    """Yields the docstrings of each class, function and `add_newdoc` of a module."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield list(_docstrings(node))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            function = node.value.func
            if isinstance(function, ast.Name) and function.id == "add_newdoc":
                yield [max(_strings(node), key=len, default="")]


def _docstrings(
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> Iterator[str]:
    yield ast.get_docstring(node, clean=False) or ""
    if isinstance(node, ast.ClassDef):
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                yield from _docstrings(child)


def _strings(node: ast.AST) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """Yields the paragraphs and list items of a docstring, unwrapped, markup inside."""
    skipped_below: int | None = None
    section = ""
    for chunk in _chunks(lines):
        indent = _indent(chunk[0])
        if len(chunk) > 1 and _UNDERLINE.match(chunk[1]):
            section = chunk[0].strip().lower()
            chunk = chunk[2:]
        if skipped_below is not None and indent > skipped_below:
            continue
        skipped_below = None
        if section in _SKIPPED_SECTIONS or not chunk or ">>>" in chunk[0]:
            continue
        first = chunk[0].strip()
        if first.startswith(".. "):
            directive = _DIRECTIVE.match(first)
            if not directive or directive[1].lower() not in _KEPT_DIRECTIVES:
                skipped_below = indent
                continue
            # Its first line belongs to the rest, which is indented further.
            chunk = [" " * _indent(chunk[-1]) + directive[2], *chunk[1:]]
        yield from _items(chunk)
        if chunk[-1].endswith("::"):
            skipped_below = _indent(chunk[-1])


def _chunks(lines: list[str]) -> Iterator[list[str]]:
    for has_text, group in itertools.groupby(lines, key=lambda x: bool(x.strip())):
        if has_text:
            yield list(group)


def _items(chunk: list[str]) -> Iterator[str]:
    """Yields the texts of a chunk: list items, fields, terms and their descriptions."""
    item: list[str] = []
    hangs, last = False, 0
    for line in chunk:
        text, indent = line.strip(), _indent(line)
        mark = _ITEM.match(text) or _FIELD.match(text)
        is_description = indent > last and len(item) == 1 and not hangs
        if item and (mark or indent < last or is_description):
            yield " ".join(item)
            item = []
        if not item:
            hangs = mark is not None
        item.append(text[mark.end() :] if mark else text)
        last = indent
    yield " ".join(item)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _plain(text: str) -> str:
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())


def _is_prose(sentence: str) -> bool:
    letters = sum(map(str.isalpha, sentence)) + sentence.count(" ")
    is_wordy = letters >= 0.8 * len(sentence) and not _CODE.search(sentence)
    if _ENDS_WITH_STOP.search(sentence):
        return is_wordy and sentence.count(" ") >= 3
    # A summary or description without a stop, or the introduction of a list.
    return is_wordy and _UNSTOPPED.match(sentence) is not None


def _remember(text: str, seen: set[str]) -> bool:
    """True if a sentence is new, up to case, digits and punctuation."""
    key = re.sub(r"[\W\d_]+", "", text.lower())
    is_new = key not in seen
    seen.add(key)
    return is_new
