"""Says what labelled files hold, and lists what is wrong with them.

Examples:
  bert-jax check train.tsv dev.tsv
  bert-jax check train.conll dev.conll
  bert-jax check --task answer train.jsonl
"""


def arguments(add) -> None:
    add("files", nargs="+", help="the first is to train on")
    tasks = ("classify", "answer", "tag", "choose")
    add("--task", choices=tasks, help="what they teach; found by the ending if unset")
    add("--text", help="its column, by name or position from 0; found if unset")
    add("--pair", help="likewise")
    add("--label", help="likewise")


def run(args) -> None:
    from bert_jax.data import check
    from bert_jax.data.tables import Columns

    columns = Columns(args.text, args.pair, args.label)
    for line in check.describe_files(args.files, args.task, columns):
        print(line)
