"""Losses of sentence vectors and their gradients beside sentence-transformers'."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny import LETTERS, TINY, made, wordpiece

from bert_jax.inference.model import Model
from bert_jax.models import Bert, Features, SentenceEncoder
from bert_jax.objectives import LOSSES, VectorGroups, matryoshka
from bert_jax.objectives.contrastive import DIRECTIONS, HARDNESS
from bert_jax.pretrained import Pooling

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

from sentence_transformers import SentenceTransformer  # noqa: E402
from sentence_transformers.sentence_transformer import losses as theirs  # noqa: E402
from tokenizers import Tokenizer, models  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

B, D = 7, 10
COSINE = theirs.TripletDistanceMetric.COSINE
DIMS = dict(matryoshka_dims=[10, 4], matryoshka_weights=[1.0, 0.5])
SYMMETRIC = ("query_to_doc", "doc_to_query")


def ours(name, **settings):
    return functools.partial(LOSSES[name].function, **settings)


def in_batch(**settings):
    return lambda model: theirs.MultipleNegativesRankingLoss(model, **settings)


def filtered(**settings):
    return lambda model: theirs.GISTEmbedLoss(model, Fake("guide"), **settings)


def nested(loss):
    return lambda model: theirs.MatryoshkaLoss(model, loss(model), **DIMS)


# Our loss, theirs, the number of texts in a row, and the width of labels.
CASES = {
    "pairs": (ours("multiple_negatives"), in_batch(), 2, None),
    "negatives": (ours("multiple_negatives"), in_batch(), 4, None),
    "symmetric": (
        ours("multiple_negatives", directions=SYMMETRIC, joint=False),
        in_batch(directions=SYMMETRIC, partition_mode="per_direction"),
        *(3, None),
    ),
    "four_ways": (
        ours("multiple_negatives", directions=tuple(DIRECTIONS), scale=7.0),
        in_batch(directions=tuple(DIRECTIONS), scale=7.0),
        *(4, None),
    ),
    **{
        f"hardness_{where}": (
            ours("multiple_negatives", hardness=9.0, hardness_on=where),
            in_batch(hardness_mode=mode, hardness_strength=9.0),
            *(4, None),
        )
        for where, mode in zip(
            HARDNESS,
            ("in_batch_negatives", "hard_negatives", "all_negatives"),
            strict=True,
        )
    },
    "gist": (ours("gist"), filtered(), 2, None),
    "gist_margin": (ours("gist", margin=0.2), filtered(margin=0.2), 2, None),
    "gist_negatives": (
        ours(
            "gist",
            scale=20.0,
            directions=("query_to_doc", "query_to_query"),
            margin=0.1,
            relative_margin=True,
        ),
        filtered(
            temperature=0.05,
            contrast_positives=False,
            margin_strategy="relative",
            margin=0.1,
        ),
        *(3, None),
    ),
    "cosent": (ours("cosent"), theirs.CoSENTLoss, 2, 1),
    "angle": (ours("angle"), theirs.AnglELoss, 2, 1),
    "cosine_mse": (ours("cosine_mse"), theirs.CosineSimilarityLoss, 2, 1),
    "triplet": (ours("triplet"), theirs.TripletLoss, 3, None),
    "triplet_cosine": (
        ours("triplet", distance="cosine", margin=0.3),
        lambda model: theirs.TripletLoss(model, COSINE, 0.3),
        *(3, None),
    ),
    "margin_mse": (ours("margin_mse"), theirs.MarginMSELoss, 4, 3),
    "margin_mse_margins": (ours("margin_mse"), theirs.MarginMSELoss, 4, 2),
    "margin_mse_triplets": (ours("margin_mse"), theirs.MarginMSELoss, 3, 1),
    "kl": (
        ours("kl", temperature=2.0),
        lambda model: theirs.DistillKLDivLoss(model, temperature=2.0),
        *(4, 3),
    ),
    "embedding_mse": (ours("embedding_mse"), theirs.MSELoss, 3, "teacher"),
    "matryoshka": (
        matryoshka(ours("multiple_negatives"), (10, 4), (1.0, 0.5)),
        nested(in_batch()),
        *(3, None),
    ),
    "matryoshka_cosent": (
        matryoshka(ours("cosent"), (10, 4), (1.0, 0.5)),
        nested(theirs.CoSENTLoss),
        *(2, 1),
    ),
}


class Fake(torch.nn.Module):
    """A model whose vectors are those that its features have."""

    max_seq_length = 8

    def __init__(self, name="vectors"):
        super().__init__()
        tokenizer = Tokenizer(models.WordLevel({"a": 0}, "a"))
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
        self.name = name

    def forward(self, features):
        return {"sentence_embedding": features[self.name]}

    def get_embedding_dimension(self):
        return D


@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients_equal_theirs(name):
    loss, make, C, width = CASES[name]
    draw = np.random.default_rng(len(name))
    vectors, guide = draw.normal(size=(2, B, C, D)).astype("f4")
    if width == "teacher":
        labels = draw.normal(size=(B, C, D)).astype("f4")
        groups = VectorGroups(vectors, np.ones((B, C), bool), teacher=labels)
    else:
        # Some are equal.
        labels = draw.integers(0, 5, (B, width or 1)).astype("f4") / 5
        labels = labels[:, 0] if width == 1 else labels
        groups = VectorGroups(vectors, np.ones((B, C), bool), labels, guide=guide)

    def average(vectors):
        total, count = loss(groups._replace(vectors=vectors))
        return total / count

    value, grads = jax.jit(jax.value_and_grad(average))(vectors)
    columns = [torch.tensor(vectors[:, c], requires_grad=True) for c in range(C)]
    features = [
        {"vectors": x, "guide": torch.tensor(guide[:, c])}
        for c, x in enumerate(columns)
    ]
    expected = make(Fake())(features, torch.tensor(labels))
    expected.backward()
    np.testing.assert_allclose(value, expected.item(), rtol=1e-5)
    gradient = np.stack([x.grad.numpy() for x in columns], 1)
    np.testing.assert_allclose(grads, gradient, atol=1e-5 * np.abs(gradient).max())


TEXTS = [
    ("a b c", "c b", "z"),
    ("d e", "e d d f", "k l m"),
    ("g h i j k", "g", "a o p"),
    ("q", "r s q", "t u"),
    ("v w", "w w x v y", "b"),
]


@pytest.mark.parametrize("name", ["negatives", "four_ways", "triplet"])
def test_gradients_of_a_models_parameters_equal_theirs(name, tmp_path):
    loss, make, _, _ = CASES[name]
    model = made(Features(Bert(TINY)), wordpiece(tmp_path, LETTERS))
    model.pooling = Pooling(("mean",), normalize=name != "triplet")
    model.save(tmp_path / "model")
    head = SentenceEncoder(Bert(TINY), normalize=model.pooling.normalize)
    texts = list(zip(*TEXTS, strict=True))
    rows = model.tokenizer([x for row in TEXTS for x in row])

    def average(params):
        vectors = head.apply({"params": params}, **rows)
        exists = jnp.ones((len(TEXTS), 3), bool)
        total, count = loss(VectorGroups(vectors.reshape(*exists.shape, -1), exists))
        return total / count

    value, grads = jax.jit(jax.value_and_grad(average))(model.params)
    teacher = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    teacher.train()
    expected = make(teacher)([teacher.preprocess(list(x)) for x in texts], None)
    expected.backward()
    np.testing.assert_allclose(value, expected.item(), rtol=1e-5)
    Model.of(model.head, grads).save(tmp_path / "grads")
    parameters = dict(teacher.named_parameters())
    (prefix,) = {x.split("embeddings.")[0] for x in parameters if "word_emb" in x}
    mine = load_file(tmp_path / "grads/model.safetensors")
    assert len(mine) > 15
    for key, x in mine.items():
        gradient = parameters[prefix + key.removeprefix("bert.")].grad.numpy()
        limit = 1e-5 * max(np.abs(gradient).max(), 1e-2)
        np.testing.assert_allclose(x, gradient, atol=limit, rtol=1e-4, err_msg=key)
