"""Laws of the pairs that adapt vectors to a collection."""

import doctest
import json
import sys

from examples import inverse_cloze

TEXTS = [
    f"Word {i} is a long sentence. It has {i} words too. End of it." for i in "abc"
]


def test_an_anchor_is_missing_in_nine_of_ten_positives():
    rows = inverse_cloze.pairs(TEXTS * 100)
    assert len(rows) == 600
    stays = sum(row["anchor"] in row["positive"] for row in rows)
    assert 0.05 < stays / len(rows) < 0.16
    # The two that are read together belong to one document.
    for row in rows:
        letter = row["anchor"].split()[1 if row["anchor"][0] == "W" else 2]
        assert f" {letter} " in row["positive"]


def test_pairs_depend_on_the_seed_alone():
    assert inverse_cloze.pairs(TEXTS) == inverse_cloze.pairs(TEXTS)
    assert inverse_cloze.pairs(TEXTS) != inverse_cloze.pairs(TEXTS, seed=1)


def test_the_command_writes_both_files(tmp_path, monkeypatch, capsys):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": x}) + "\n" for x in TEXTS * 50))
    monkeypatch.setattr(sys, "argv", ["inverse_cloze", str(corpus), str(tmp_path)])
    inverse_cloze.main()
    assert capsys.readouterr().out == "300 pairs\n"
    assert len((tmp_path / "dev.jsonl").read_text().splitlines()) == 200
    assert len((tmp_path / "train.jsonl").read_text().splitlines()) == 100


def test_its_example_is_right():
    assert doctest.testmod(inverse_cloze).failed == 0
