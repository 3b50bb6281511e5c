"""Laws of `bert-jax check`."""

import pytest

from bert_jax import cli
from bert_jax.data import detection

TRAIN = "sentence\tlabel\na b\tyes\nc d\tno\ne f\tno\ng h\tno\n"


def test_check_prints_the_content_of_files_and_their_overlap(tmp_path, capsys):
    train, dev = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    train.write_text(TRAIN)
    dev.write_text("sentence\tlabel\na b\tno\n")
    cli.main(["check", str(train), str(dev)])
    assert capsys.readouterr().out.splitlines() == [
        "task: classify (detected; --task sets another)",
        f"{train}: 4 rows: 3 of no, 1 of yes; text in sentence, label in label",
        f"{dev}: 1 row: 1 of no, 0 of yes; text in sentence, label in label; "
        f"1 of them is in {train} too",
    ]


def test_check_ends_with_2_and_every_problem(tmp_path, capsys):
    train, dev = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    train.write_text(TRAIN)
    dev.write_text("sentence\tlabel\na\tmaybe\nb\tyes\nc\tperhaps\n")
    with pytest.raises(SystemExit) as ended:
        cli.main(["check", str(train), str(dev)])
    assert ended.value.code == 2
    output = capsys.readouterr().err
    assert f"{dev} has 2 problems:" in output
    assert f"{dev}:2: label 'maybe': is not one of no, yes; fix it" in output
    assert f"{dev}:4: label 'perhaps': is not one of no, yes; fix it" in output


def test_check_distinguishes_numbers_from_classes(tmp_path, capsys):
    train = tmp_path / "train.csv"
    train.write_text("a b,c d,0.25\ne f,g,4.5\nh,i,3\n")
    cli.main(["check", str(train)])
    assert "3 rows with numbers; text in 0, pair in 1, label in 2" in (
        capsys.readouterr().out
    )


def test_check_knows_the_files_of_every_task(tmp_path, capsys):
    words = tmp_path / "train.conll"
    words.write_text("Tea B-drink\nis O\n\nhot O\n")
    other = tmp_path / "dev.conll"
    other.write_text("Tea O\nhot O\n\nhot O\n")
    cli.main(["check", str(words), str(other)])
    assert capsys.readouterr().out.splitlines() == [
        "task: tag (detected; --task sets another)",
        f"{words}: 2 sentences, 3 words",
        f"{other}: 2 sentences, 3 words; 1 of them is in {words} too",
        f"2 labels in {words}: 2 of O, 1 of B-drink",
    ]
    rows = tmp_path / "train.jsonl"
    rows.write_text(
        '{"id": "1", "question": "What is hot?", "context": "Tea is hot.", '
        '"answers": {"text": ["Tea"], "answer_start": [0]}}\n'
        '{"id": "2", "question": "Who?", "context": "Tea.", "answers": []}\n'
    )
    cli.main(["check", str(rows)])
    assert "2 questions, 1 without an answer" in capsys.readouterr().out
    choices = tmp_path / "train.csv"
    choices.write_text(
        "sent1,sent2,ending0,ending1,label\nTea.,It,is hot,is a cat,0\n"
        "Ice.,It,is hot,is cold,1\n"
    )
    cli.main(["check", str(choices)])
    assert f"{choices}: 2 rows of up to 2 choices" in capsys.readouterr().out


def test_check_prints_the_lines_of_unknown_word_labels(tmp_path, capsys):
    train, dev = tmp_path / "train.conll", tmp_path / "dev.conll"
    train.write_text("Tea B-drink\nis O\n")
    dev.write_text("Tea B-drink\nis X\n")
    with pytest.raises(SystemExit):
        cli.main(["check", str(train), str(dev)])
    assert f"{dev}:2: label 'X': is not one of B-drink, O" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, content, task",
    [
        ("a.tsv", "a good one\t1\n", "classify"),
        ("a.jsonl", '{"text": "a", "label": 1}', "classify"),
        ("a.json", '[{"text": "a", "label": 1}]', "classify"),
        # QNLI has a question, too.
        ("a.jsonl", '{"question": "a?", "context": "b", "label": 1}', "classify"),
        ("a.tsv", "question\tsentence\tlabel\na\tb\t1\n", "classify"),
        ("a.jsonl", '{"question": "a?", "context": "b", "answers": []}', "answer"),
        ("a.json", '[{"question": "a?", "context": "b", "answers": []}]', "answer"),
        ("a.json", '{"version": "2.0", "data": [{"paragraphs": []}]}', "answer"),
        ("a.jsonl", '{"tokens": ["a", "b"], "ner_tags": [0, 1]}', "tag"),
        ("a.conllu", "", "tag"),
        ("a.tsv", "EU\tB-ORG\nrejects\tO\n\nPeter\tB-PER\n", "tag"),
        ("a.txt", "EU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\n", "tag"),
        ("a.csv", ",sent1,sent2,ending0,ending1,label\n0,a,b,c,d,1\n", "choose"),
        ("a.jsonl", '{"context": "a", "choices": ["b", "c"], "label": 0}', "choose"),
    ],
)
def test_the_task_of_a_file_is_detected(tmp_path, name, content, task):
    (tmp_path / name).write_text(content)
    assert detection.task_of(str(tmp_path / name)) == task


def test_check_describes_the_groups_of_texts_of_a_file(tmp_path, capsys):
    train = tmp_path / "train.csv"
    train.write_text("a b,c d,0.25\ne f,g,4.5\nh,i,3\n")
    cli.main(["check", str(train), "--task", "embed"])
    line = f"{train}: 3 scored pairs; text in 0, 1, score in 2\n"
    assert line in capsys.readouterr().out
