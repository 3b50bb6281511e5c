"""Makes entities.json: labels drawn at random, and how seqeval scores them.

    python tests/goldens/make_entities.py

writes it beside itself; it needs seqeval (1.2.2 made what is there).
"""

import json
import pathlib
import random
import warnings

from seqeval import metrics

LABELS = {
    "IOB": ["O", "B-A", "I-A", "B-B-c", "I-B-c"],
    "BIOES": [
        *("O", "B-A", "I-A", "E-A", "S-A"),
        *("B-B-c", "I-B-c", "E-B-c", "S-B-c"),
    ],
    "no types": ["O", "B", "I"],
}


def drawn(names: list[str], draw: random.Random) -> list[list[list[str]]]:
    """Sentences of labels, and predictions that are often the same."""
    real = [draw.choices(names, k=draw.randint(0, 9)) for _ in range(9)]
    tags = [[x if draw.random() < 0.7 else draw.choice(names) for x in y] for y in real]
    return [real, tags]


def main() -> None:
    warnings.simplefilter("ignore")
    draw, cases = random.Random(0), []
    for scheme, names in LABELS.items():
        for _ in range(3):
            pair = drawn(names, draw)
            report = metrics.classification_report(*pair, output_dict=True)
            cases.append(
                {
                    "scheme": scheme,
                    "labels": pair[0],
                    "predictions": pair[1],
                    "scores": {
                        kind: [float(x) for x in scores.values()]
                        for kind, scores in report.items()
                        if kind not in ("macro avg", "weighted avg")
                    },
                }
            )
    path = pathlib.Path(__file__).with_name("entities.json")
    path.write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
