"""Users' files as text: decompressed, decoded, and named if they hold no text."""

import bz2
import codecs
import contextlib
import gzip
import itertools
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from bert_jax.files import local_path

# Compressed files by their endings: the program, its first bytes, and their reader.
COMPRESSED: dict[str, tuple[str, bytes, Callable[..., Any]]] = {
    ".gz": ("gzip", b"\x1f\x8b", gzip.open),
    ".bz2": ("bzip2", b"BZh", bz2.open),
    ".xz": ("xz", b"\xfd7zXZ\0", lzma.open),
}

# Files that are no text, by their first bytes: what they are, and what to do.
KINDS = (
    (rb"PK\x03\x04.{26}\[Content_Types\]", "an Office document", "save it as {text}"),
    (rb"PK\x03\x04", "a zip archive", "unpack it: unzip {path}"),
    (rb"\xd0\xcf\x11\xe0", "an Office document", "save it as {text}"),
    (rb"%PDF-", "a PDF document", "extract its text: pdftotext {path}"),
    (rb"\{\\rtf", "an RTF document", "save it as {text}"),
    (rb"PAR1", "a Parquet table", "rename it to end in .parquet"),
    (rb"ARROW1", "an Arrow table", "write it as .parquet or .jsonl"),
    (rb"\x1f\x8b", "compressed by gzip", "rename it to end in .gz"),
    (rb"BZh[1-9]1AY&SY", "compressed by bzip2", "rename it to end in .bz2"),
    (rb"\xfd7zXZ\x00", "compressed by xz", "rename it to end in .xz"),
    (rb"\x28\xb5\x2f\xfd", "compressed by zstd", "decompress it: unzstd {path}"),
    (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it: 7z x {path}"),
    (rb".{257}ustar", "a tar archive", "unpack it: tar xf {path}"),
    (rb"\x93NUMPY", "a NumPy array", "give the texts it was made from"),
    (rb"\x89HDF", "an HDF5 file", "export its texts as .jsonl"),
    (rb".{7}\x00\{\"", "a file of weights (safetensors)", "give a file of text"),
    (rb"\x89PNG|\xff\xd8\xff|GIF8", "an image", "give a file of text"),
    (rb"version https://git-lfs", "a Git LFS pointer", "fetch it: git lfs pull"),
)
_TEXT = "UTF-8 text, a table as UTF-8 CSV"

# Bytes of a file that tell its kind.
HEAD = 512

# The encodings that a byte order mark at the start of a file names.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def ending(path: str | os.PathLike) -> str:
    """The ending of a path in lower case, without that of a compressed file.

    >>> ending("a/TRAIN.tsv.gz")
    '.tsv'
    """
    path = Path(path)
    if path.suffix.lower() in COMPRESSED:
        path = path.with_suffix("")
    return path.suffix.lower()


def lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields (number from 1, stripped line) of text in UTF-8, or UTF-16 with its mark.

    `-` is standard input.

    Raises:
      ValueError: for a file that is not text, or a line that is not UTF-8.
    """
    name = name_of(path)
    with _opened(path) as file:
        head = list(_head(file, 1 if path == "-" else HEAD))
        start = b"".join(head)
        _check_text(path, start)
        encoding, content = _encoding(start), itertools.chain(head, file)
        if encoding != "utf-8":
            decoded = _decoded_lines(name, content, encoding)
            yield from ((i, line.strip()) for i, line in enumerate(decoded, 1))
            return
        offset = 0
        for number, line in enumerate(content, 1):
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                offset += error.start
                raise _not_utf8(path, number, line[error.start], offset) from None
            yield number, (text.removeprefix("\ufeff") if number == 1 else text).strip()
            offset += len(line)


def read_text(path: str | os.PathLike) -> str:
    """The text of a whole file in UTF-8, or UTF-16 with its mark.

    Raises:
      ValueError: for a file that is not text, with the first byte that is not UTF-8.
    """
    path = os.fspath(path)
    with _opened(path) as file:
        content = b"".join(file)
    _check_text(path, content)
    encoding = _encoding(content)
    if encoding != "utf-8":
        return "\n".join(_decoded_lines(path, [content], encoding))
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _not_utf8(path, line, content[error.start], error.start) from None


def name_of(path: str) -> str:
    """A path as errors name it; `-` is standard input."""
    return "standard input" if path == "-" else path


def _head(file: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The first lines of a file, of `size` bytes together or more."""
    for line in file:
        yield line
        size -= len(line)
        if size <= 0:
            return


def _decoded_lines(name: str, content: Iterable[bytes], encoding: str) -> Iterator[str]:
    decoder, rest = codecs.getincrementaldecoder(encoding)(), ""
    try:
        for part in content:
            *whole, rest = (rest + decoder.decode(part)).split("\n")
            yield from whole
        if rest := rest + decoder.decode(b"", final=True):
            yield rest
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} begins as {encoding.upper()} and goes on otherwise "
            f"({error.reason}); save it as UTF-8"
        ) from None


@contextlib.contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    """The content of a file, decompressed, or of standard input."""
    suffix = Path(path).suffix.lower()
    try:
        if path == "-":
            yield sys.stdin.buffer
            return
        local = local_path(path)
        if suffix in COMPRESSED:
            _check_compressed(local, *COMPRESSED[suffix][:2])
        opener: Any = COMPRESSED[suffix][2] if suffix in COMPRESSED else open
        with opener(local, "rb") as file:
            yield file
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise ValueError(f"{path}: {error.strerror}; check the path") from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(
            f"{name_of(path)} cannot be read ({error}); repair it or leave it out"
        ) from error


def _check_compressed(path: Path, program: str, mark: bytes) -> None:
    """Raises ValueError for a file whose content contradicts its ending."""
    with open(path, "rb") as file:
        if not mark.startswith(file.read(len(mark))):
            raise ValueError(
                f"{path} is not compressed by {program}; rename it without its "
                f"{path.suffix}"
            )


def _encoding(head: bytes) -> str:
    return next((name for mark, name in _MARKS if head.startswith(mark)), "utf-8")


def _check_text(path: str, content: bytes) -> None:
    """Raises ValueError for a file that is not text, by its first bytes or a NUL."""
    for pattern, kind, remedy in KINDS:
        if re.match(pattern, content, re.DOTALL):
            remedy = remedy.format(path=path, text=_TEXT)
            raise ValueError(f"{name_of(path)} is {kind}; {remedy}")
    position = content.find(b"\0")
    if position < 0 or _encoding(content) != "utf-8":
        return
    line = content.count(b"\n", 0, position) + 1
    remedy = r"remove it: tr -d '\0' < " + path
    for offset, encoding in ((1, "utf-16le"), (0, "utf-16be")):
        # In the UTF-16 of western text every second byte is 0.
        bytes_ = content[offset:60:2]
        if 10 * bytes_.count(0) > 9 * len(bytes_):
            remedy = f"it looks like UTF-16, so convert it: {_iconv(path, encoding)}"
    raise ValueError(
        f"{name_of(path)}:{line}: there is a NUL byte in the text; {remedy}"
    )


def _not_utf8(path: str, line: int, byte: int, offset: int) -> ValueError:
    return ValueError(
        f"{name_of(path)}:{line}: byte {byte:#04x} at offset {offset} is not UTF-8; "
        f"convert the file, for example\n{_iconv(path, 'latin1')}"
    )


def _iconv(path: str, encoding: str) -> str:
    """A command that converts a file to UTF-8."""
    suffix = Path(path).suffix.lower()
    source = f"<({COMPRESSED[suffix][0]} -dc {path})" if suffix in COMPRESSED else path
    return f"iconv -f {encoding} -t utf-8 {source} > converted{ending(path) or '.txt'}"
