r"""Writes squad.json: what Google's code and SQuAD's official scripts make of examples.

    python tests/goldens/make_squad.py run_squad.py tokenization.py \
        evaluate-v1.1.py evaluate-v2.0.py

The first two are files of google-research/bert (or of the package bert-tensorflow),
the others are linked from SQuAD's site. They run as they are, with stand-ins for
TensorFlow; questions, contexts and logits are made up here.
"""

import importlib.util
import json
import random
import sys
import tempfile
import types
from pathlib import Path
from unittest import mock

HERE = Path(__file__).parent

CUTTING = {"max_length": 30, "doc_stride": 7, "max_query": 8}
DECODING = {"n_best": 6, "max_answer": 5}
# Logits are stored in so many parts of 1.
PARTS = 8

CONTEXTS = {
    "Ada Lovelace (1815-1852) wrote the first program. Lovelace's notes, which she "
    "finished in 1843, describe how the Analytical Engine would compute Bernoulli "
    "numbers; few of her contemporaries understood them.": [
        ("Who wrote the first program?", "Ada Lovelace"),
        ("In which year was the first programmer born?", "1815"),
        ("Whose notes were finished in 1843?", "Lovelace's"),
        ("What would be computed?", "Bernoulli numbers"),
        ("Which engine did Babbage build in Paris with gold?", None),
    ],
    "The Japanese electronics industry is the largest in Zürich, São Paulo and Łódź; "
    "its café-bars sell 42% of all crème brûlée.": [
        ("What country exports?", "Japan"),
        ("Where is the second largest?", "São Paulo"),
        ("How much is sold?", "42%"),
        ("What is sold there to tourists from abroad?", "crème brûlée"),
        ("Who sells trains?", None),
    ],
    "東京 is the capital of Japan (日本).": [
        ("What is the capital?", "東京"),
        ("Japan's name?", "日本"),
    ],
    "Short.": [("How long?", "Short"), ("How high?", None)],
}

# A context, the answer that its tokens make, and whether tokens are in lower case.
SLICES = [
    ("Steve Smith's bat", "Steve Smith"),
    ("born in (1895-1943).", "1895"),
    ("the Japanese economy", "Japanese"),
    ("at the Café-Bar", "Café"),
    ("He paid $4.50, then left", "4.50"),
    ('says "yes" to it', "yes"),
    ("Ada  Lovelace\nwrote", "Ada  Lovelace"),
    ("the cafe\u0301, open", "cafe\u0301"),
    ("a soft\u00adware, free", "soft\u00adware"),
    ("in 東京都, Japan", "東京"),
    ("only \U0001f642, really", "\U0001f642"),
    ("İstanbul, Türkiye", "İstanbul"),
    ("worth 3\u202fkm.", "3"),
]

WORDS = "the a an Ada Lovelace wrote first 1843 program. program, (1843) naïve NAÏVE"
WORDS = [
    *WORDS.split(),
    "“quoted”",
    "l'été",
    "ﬁne",
    "İ",
    "ẞ",
    "東京",
    "...",
    "-",
    "\u00a0",
]


def vocabulary():
    """Special tokens, words, and all letters, which continue words too."""
    words = "who what where which is the in of and first japan japanese".split()
    letters = sorted(set("".join(CONTEXTS).lower()) | set(map(chr, range(97, 123))))
    plain = [x for x in letters if x.isascii() and not x.isspace()]
    plain += [*"0123456789$\"'%-東京日本都"]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *plain]
    return list(dict.fromkeys([*pieces, *(f"##{x}" for x in plain if x.isalnum())]))


def dataset():
    """The questions in SQuAD's form."""
    paragraphs, number = [], 0
    for context, questions in CONTEXTS.items():
        qas = []
        for question, answer in questions:
            number += 1
            answers = [] if answer is None else [marked(context, answer)]
            qas.append(
                {
                    "id": f"q{number}",
                    "question": question,
                    "answers": answers,
                    "is_impossible": answer is None,
                }
            )
        paragraphs.append({"context": context, "qas": qas})
    return {"version": "v2.0", "data": [{"title": "", "paragraphs": paragraphs}]}


def marked(context, answer):
    return {"text": answer, "answer_start": context.index(answer)}


def stand_in(flags):
    """As much of TensorFlow as the code touches."""
    tf = types.ModuleType("tensorflow")
    tf.gfile = types.SimpleNamespace(
        Open=lambda path, mode: open(path, mode, encoding="utf-8"),
        GFile=lambda path, mode: open(path, mode, encoding="utf-8"),
    )
    tf.logging = mock.MagicMock()
    tf.flags = mock.MagicMock()
    tf.flags.FLAGS = flags
    return tf


def imported(path, name):
    """A file as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def features(squad, tokenizer, path, is_training):
    """Windows as Google's code cuts them."""
    windows = []
    squad.convert_examples_to_features(
        examples=squad.read_squad_examples(path, is_training),
        tokenizer=tokenizer,
        max_seq_length=CUTTING["max_length"],
        doc_stride=CUTTING["doc_stride"],
        max_query_length=CUTTING["max_query"],
        is_training=is_training,
        output_fn=windows.append,
    )
    return windows


def window(feature):
    """The part of a window that is compared."""
    length = len(feature.tokens)
    return {
        "question": feature.example_index,
        "input_ids": feature.input_ids[:length],
        "token_type_ids": feature.segment_ids[:length],
        "target": [feature.start_position, feature.end_position],
        "owned": [
            feature.token_is_max_context[i] for i in feature.token_is_max_context
        ],
    }


def drawn(draw, feature):
    """Logits of a window; those of [CLS] are high for some of the questions."""
    shift = 6 * (feature.example_index % 3)
    return [
        [round((draw.gauss(0, 3) + shift * (not i)) * PARTS) for i in range(length)]
        for length in [len(feature.tokens)] * 2
    ]


def decoded(squad, path, cut, logits, folder):
    """Predictions, the n best, and null odds, as Google's files hold them."""
    results = [
        squad.RawResult(feature.unique_id, *(padded(x) for x in pair))
        for feature, pair in zip(cut, logits, strict=True)
    ]
    names = ("predictions", "nbest", "null_odds")
    squad.write_predictions(
        squad.read_squad_examples(path, False),
        cut,
        results,
        DECODING["n_best"],
        DECODING["max_answer"],
        True,
        *(str(folder / name) for name in names),
    )
    written = [name for name in names if (folder / name).exists()]
    return {name: json.loads((folder / name).read_text()) for name in written}


def padded(column):
    return [x / PARTS for x in column] + [-1e4] * (CUTTING["max_length"] - len(column))


def final_text(squad, basic, context, answer):
    """The text that Google's code gives for a span that is exactly `answer`."""
    start = context.index(answer)
    first = context[:start].split()
    begins = start and not context[start - 1].isspace()
    words = context.split()
    count = len(answer.split())
    at = len(first) - (1 if begins else 0)
    original = " ".join(words[at : at + count])
    tokens = " ".join(" ".join(basic.tokenize(answer)).split())
    return squad.get_final_text(tokens, original, True)


def answers(draw, blank):
    words = draw.choices(WORDS, k=draw.randint(0 if blank else 1, 4))
    return " ".join(words)


def exam(draw, count, silent):
    """Right answers, answers that share words with them, and odds."""
    right, predictions, odds = {}, {}, {}
    for number in range(count):
        key = f"q{number}"
        many = draw.randint(0 if silent else 1, 3)
        right[key] = [answers(draw, False) for _ in range(many)]
        close = right[key] and draw.random() < 0.6
        predictions[key] = draw.choice(right[key]) if close else answers(draw, True)
        if close and draw.random() < 0.5:
            predictions[key] = f"{predictions[key]} {draw.choice(WORDS)}".upper()
        odds[key] = draw.randint(-40, 40) / 8
    return {"right": right, "said": predictions, "odds": odds}


def in_squads_form(right):
    qas = [
        {"id": key, "answers": [{"text": text} for text in texts]}
        for key, texts in right.items()
    ]
    return [{"paragraphs": [{"qas": qas}]}]


def judged(one, two):
    """Exams with the scores that the official scripts give."""
    draw, cases = random.Random(7), []
    for silent in (False, True):
        for _ in range(3):
            case = exam(draw, 40, silent)
            data, predictions = in_squads_form(case["right"]), case["said"]
            if not silent:
                case["squad_1"] = one.evaluate(data, predictions)
            case |= {"threshold": 0.5, "squad_2": evaluated(two, data, case)}
            cases.append(case)
    return cases


def evaluated(two, data, case):
    """The output of the script of SQuAD 2.0 with --na-prob-file."""
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, content in (
            ("data", {"data": data}),
            ("said", case["said"]),
            ("odds", case["odds"]),
        ):
            files[name] = str(Path(folder) / name)
            Path(files[name]).write_text(json.dumps(content))
        two.OPTS = types.SimpleNamespace(
            data_file=files["data"],
            pred_file=files["said"],
            na_prob_file=files["odds"],
            na_prob_thresh=0.5,
            out_file=str(Path(folder) / "out"),
            out_image_dir=None,
        )
        two.main()
        return json.loads((Path(folder) / "out").read_text())


def main(run_squad, tokenization, one, two):
    flags = types.SimpleNamespace(
        version_2_with_negative=True,
        null_score_diff_threshold=0.0,
        verbose_logging=False,
    )
    sys.modules["tensorflow"] = stand_in(flags)
    tokens = imported(tokenization, "tokenization")
    for name in ("modeling", "optimization"):
        sys.modules[name] = types.ModuleType(name)
    bert = sys.modules["bert"] = types.ModuleType("bert")
    bert.modeling, bert.optimization = (None, None)
    bert.tokenization = tokens
    squad = imported(run_squad, "run_squad")
    squad.FLAGS = flags
    draw = random.Random(3)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "vocab.txt").write_text("\n".join(vocabulary()), "utf-8")
        (folder / "data.json").write_text(json.dumps(dataset()), "utf-8")
        data = str(folder / "data.json")
        tokenizer = tokens.FullTokenizer(str(folder / "vocab.txt"), do_lower_case=True)
        trained = features(squad, tokenizer, data, True)
        cut = features(squad, tokenizer, data, False)
        logits = [drawn(draw, feature) for feature in cut]
        results = {"squad_2": decoded(squad, data, cut, logits, folder)}
        (folder / "null_odds").unlink()
        flags.version_2_with_negative = False
        results["squad_1"] = decoded(squad, data, cut, logits, folder)
    golden = {
        "cutting": CUTTING,
        "decoding": DECODING,
        "parts": PARTS,
        "vocabulary": vocabulary(),
        "dataset": dataset(),
        "windows": [window(feature) for feature in trained],
        "logits": logits,
        **results,
        "slices": [
            [*pair, final_text(squad, tokenizer.basic_tokenizer, *pair)]
            for pair in SLICES
        ],
        "exams": judged(imported(one, "evaluate_1"), imported(two, "evaluate_2")),
    }
    (HERE / "squad.json").write_text(json.dumps(golden) + "\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
