"""Losses of rerankers and their gradients beside sentence-transformers', in torch."""

import jax
import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

from bert_jax.models import Bert, SequenceClassifier
from bert_jax.objectives import ranking
from bert_jax.pretrained import convert
from bert_jax.pretrained.families import family_of

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

QUERIES = ["a b", "q c", "d"]
DOCUMENTS = [["e f g", "h", "i j"], ["k l", "m n o p"], ["q", "r s", "t u v", "w"]]
RELEVANCE = [[2.0, 0.0, 1.0], [0.0, 1.0], [1.0, 0.0, 3.0, 3.0]]
# Of the same number for each query, the best document first.
TRIPLES = [row[:2] for row in DOCUMENTS]
# Near to the scores of the model: gradients of large errors only have larger rounding.
TEACHER = [[0.4, 0.15], [0.2, -0.1], [0.05, 0.025]]
# Of 0 to 1, for each document alone.
SHARES = [[0.7, 0.0], [1.0, 0.2], [0.5, 1.0]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    head = SequenceClassifier(Bert(TINY), 1)
    model = made(head, wordpiece(folder, LETTERS))
    # Scores of the size of a trained model's, so that no pair is alike.
    model.params["classifier"]["kernel"] *= 10
    model.save(folder / "saved")
    return model, folder / "saved"


def ours(model, name, documents, labels, **settings):
    """The loss, and its gradients by the names of torch."""
    B, C = len(documents), max(map(len, documents))
    exists = np.array([[c < len(row) for c in range(C)] for row in documents])
    padded = np.zeros((B, C), np.float32)
    padded[exists] = np.concatenate(labels)
    pairs = [(q, d) for q, row in zip(QUERIES, documents, strict=True) for d in row]
    batch = model.tokenizer(*map(list, zip(*pairs, strict=True)))
    function = getattr(ranking, name)

    def loss(params):
        logits = model.head.apply({"params": params}, **batch)[:, 0]
        scores = jax.numpy.zeros((B, C)).at[np.nonzero(exists)].set(logits)
        total, count = function(scores, padded, exists, **settings)
        return total / count

    value, slopes = jax.value_and_grad(loss)(model.params)
    config = model.config
    family = family_of(config)
    head = family.heads[family.architecture(SequenceClassifier)]
    flat = convert.flatten(jax.tree.map(np.asarray, slopes))
    return value, convert.to_tensors(flat, family.names(head, flat, config))


def theirs(directory, make, inputs, labels):
    from sentence_transformers import CrossEncoder

    encoder = CrossEncoder(str(directory), device="cpu")
    losses = [make(encoder)(*x) for x in zip(inputs, labels, strict=True)]
    loss = sum(losses) / len(losses)
    loss.backward()
    slopes = {k: x.grad for k, x in encoder.model.named_parameters()}
    return loss.item(), {k: x.numpy() for k, x in slopes.items() if x is not None}


def pairs_of(documents):
    pairs = [(q, d) for q, row in zip(QUERIES, documents, strict=True) for d in row]
    return list(map(list, zip(*pairs, strict=True)))


def listed(name, **settings):
    """A listwise loss of the library, and its inputs."""

    def make(losses):
        labels = [torch.tensor(row) for row in RELEVANCE]
        inputs = [[QUERIES, DOCUMENTS]], [labels]
        return (lambda model: getattr(losses, name)(model, **settings)), *inputs

    return make


def alone(name):
    def make(losses):
        inputs = [pairs_of(TRIPLES)], [torch.tensor(SHARES).ravel()]
        return getattr(losses, name), *inputs

    return make


def margins(losses):
    columns = [QUERIES, *map(list, zip(*TRIPLES, strict=True))]
    return losses.MarginMSELoss, [columns], [torch.tensor(TEACHER)]


def one_query_a_batch(losses):
    """Their loss adds negatives of other queries, of which one query has none."""
    inputs = [
        [[q], *([d] for d in row)] for q, row in zip(QUERIES, TRIPLES, strict=True)
    ]

    def make(model):
        return losses.MultipleNegativesRankingLoss(
            model, scale=1.0, activation_fn=torch.nn.Identity()
        )

    return make, inputs, [None] * len(inputs)


def schemes(name, **settings):
    def make(losses):
        scheme = getattr(losses, name)()
        return listed("LambdaLoss", weighting_scheme=scheme, **settings)(losses)

    return make


@pytest.mark.parametrize(
    "name, settings, documents, labels, library",
    [
        ("binary_cross_entropy", {}, TRIPLES, SHARES, alone("BinaryCrossEntropyLoss")),
        ("squared_error", {}, TRIPLES, SHARES, alone("MSELoss")),
        ("margin_mse", {}, TRIPLES, TEACHER, margins),
        ("cross_entropy", {}, TRIPLES, TEACHER, one_query_a_batch),
        ("list_net", {}, DOCUMENTS, RELEVANCE, listed("ListNetLoss")),
        ("rank_net", {}, DOCUMENTS, RELEVANCE, listed("RankNetLoss")),
        ("lambda_loss", {}, DOCUMENTS, RELEVANCE, listed("LambdaLoss")),
        ("lambda_loss", {"k": 2}, DOCUMENTS, RELEVANCE, listed("LambdaLoss", k=2)),
        ("lambda_loss", {"mu": 0}, DOCUMENTS, RELEVANCE, schemes("LambdaRankScheme")),
    ],
)
def test_losses_and_gradients_are_those_of_sentence_transformers(
    name, settings, documents, labels, library, model
):
    from sentence_transformers.cross_encoder import losses

    model, directory = model
    value, slopes = ours(model, name, documents, labels, **settings)
    expected, their_slopes = theirs(directory, *library(losses))
    assert float(value) == pytest.approx(expected, abs=1e-5)
    named = {k.removeprefix("module."): x for k, x in their_slopes.items()}
    assert slopes.keys() == named.keys()
    scale = max(np.abs(x).max() for x in named.values())
    assert scale > 1e-3
    for key, x in named.items():
        np.testing.assert_allclose(slopes[key], x, atol=1e-5 * max(scale, 1))
