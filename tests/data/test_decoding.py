"""Laws of users' files as text: encodings, compression, and files that are no text."""

import bz2
import gzip
import lzma

import numpy as np
import pytest

from bert_jax.data import decoding

TEXT = "söme text\n\nanother line\n"
LINES = [(1, "söme text"), (2, ""), (3, "another line")]


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.txt", TEXT.encode()),
        ("a.txt", TEXT.encode("utf-8-sig")),
        ("a.txt", TEXT.encode("utf-16")),
        ("a.txt", b"\xfe\xff" + TEXT.encode("utf-16-be")),
        ("a.txt", TEXT.encode("utf-32")),
        ("a.txt", TEXT.replace("\n", "\r\n").encode("utf-16")),
        ("a.txt.gz", gzip.compress(TEXT.encode(), mtime=0)),
        ("a.TXT.GZ", gzip.compress(TEXT.encode("utf-16"), mtime=0)),
        ("a.txt.bz2", bz2.compress(TEXT.encode())),
        ("a.txt.xz", lzma.compress(TEXT.encode())),
    ],
)
def test_text_is_the_same_in_every_encoding_and_compression(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    assert list(decoding.lines(str(path))) == LINES
    read = decoding.read_text(path).replace("\r", "")
    assert read.rstrip("\n") == TEXT.rstrip("\n")
    assert decoding.ending(path) == ".txt"


ZIP = b"PK\x03\x04" + bytes(26)
WEIGHTS = (10).to_bytes(8, "little") + b'{"a":{"dtype":"F32"}}'


@pytest.mark.parametrize(
    "content, message",
    [
        (
            ZIP + b"[Content_Types].xml",
            "an Office document; save",
        ),
        (
            ZIP + b"a.txt",
            r"a zip archive; unpack it: unzip \S*a$",
        ),
        (b"\xd0\xcf\x11\xe0", "an Office document; save it as UTF-8 text, a table as"),
        (b"%PDF-1.7\n%\xe2\xe3", "a PDF document; extract its text: pdftotext"),
        (b"PAR1\x15\0", "a Parquet table; rename it to end in .parquet"),
        (gzip.compress(b"a b", mtime=0), "compressed by gzip; rename it to end in .gz"),
        (bz2.compress(b"a b"), "compressed by bzip2; rename it to end in .bz2"),
        (lzma.compress(b"a b"), "compressed by xz; rename it to end in .xz"),
        (b"\x28\xb5\x2f\xfd", "compressed by zstd; decompress it: unzstd"),
        (b"\x93NUMPY\x01", "a NumPy array"),
        (WEIGHTS, r"a file of weights \(safetensors\); give a file of text"),
        (b"\x89PNG\r\n", "an image"),
        (b"version https://git-lfs.github.com/spec/v1", "fetch it: git lfs pull"),
        (
            "a b\nc".encode("utf-16-le"),
            ":1: there is a NUL .* iconv -f utf-16le -t",
        ),
        ("a b\nc".encode("utf-16-be"), "looks like UTF-16, .* iconv -f utf-16be"),
        (b"a b\nc\0d e f\n", ":2: there is a NUL byte in the text; remove it: tr -d"),
        (
            "é".encode("latin1"),
            "byte 0xe9 at offset 0 is not .*\niconv -f latin1",
        ),
        ("a b".encode("utf-16") + b"x", "begins as UTF-16 and goes on otherwise"),
    ],
)
def test_a_file_that_is_no_text_is_named_with_a_remedy(tmp_path, content, message):
    path = tmp_path / "a"
    path.write_bytes(content)
    for read in (decoding.read_text, lambda path: list(decoding.lines(str(path)))):
        with pytest.raises(ValueError, match=message) as raised:
            read(path)
        assert str(raised.value).count("\n") <= 1
        assert "latin1" not in str(raised.value) or content == b"\xe9"


def test_an_ending_that_the_content_contradicts_is_refused(tmp_path):
    path = tmp_path / "a.tsv.gz"
    path.write_text("a\t1\n")
    with pytest.raises(ValueError, match="not compressed by gzip; rename it without"):
        decoding.read_text(path)
    path.write_bytes(gzip.compress(b"a\t1\n" * 99)[:-9])
    with pytest.raises(ValueError, match="cannot be read .*repair it"):
        decoding.read_text(path)
    path.write_bytes(gzip.compress(b"a\xe9\n"))
    with pytest.raises(ValueError, match=r"iconv .* <\(gzip -dc \S*\) > converted.tsv"):
        decoding.read_text(path)


def test_a_missing_file_is_a_sentence(tmp_path):
    for path in (tmp_path / "no", tmp_path, tmp_path / "no.gz"):
        with pytest.raises(ValueError, match="check the path"):
            decoding.read_text(path)


def test_an_array_of_numpy_is_no_text(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(ValueError, match="is a NumPy array"):
        decoding.read_text(tmp_path / "a.npy")
