"""Laws of the heads, and the parameter counts of the published models."""

import math

import jax
import numpy as np
import pytest

from bert_jax.models import (
    Bert,
    BertConfig,
    Features,
    MaskedLM,
    MultipleChoice,
    Pretraining,
    ReplacedTokenDetection,
    SequenceClassifier,
    SpanClassifier,
    TokenClassifier,
)
from bert_jax.pretrained import config_json, convert, new_head
from bert_jax.pretrained.convert import parameter_shapes
from bert_jax.pretrained.families import FAMILIES

TINY = BertConfig(
    vocab_size=31,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=16,
)
GROUPED = BertConfig(
    **vars(TINY)
    | {
        "num_hidden_layers": 5,
        "num_hidden_groups": 2,
        "inner_group_num": 3,
        "embedding_size": 12,
        "tie_word_embeddings": False,
    }
)
ROBERTA = BertConfig(
    **vars(TINY) | {"model_type": "roberta", "pad_token_id": 1, "position_offset": 2},
)
B, L = 2, 7


def draw_ids(shape=(B, L)):
    return np.random.default_rng(0).integers(5, TINY.vocab_size, shape)


def started(module, ids, seed=1):
    shapes = jax.eval_shape(module.init, jax.random.key(0), ids)["params"]
    draw = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: draw.normal(0.1, 0.3, x.shape).astype(np.float32), shapes
    )


def run(module, params, *args, **kwargs):
    return module.apply({"params": params}, *args, **kwargs)


@pytest.mark.parametrize("config", [TINY, GROUPED])
@pytest.mark.parametrize("head", [MaskedLM, Pretraining, MultipleChoice])
def test_declared_shapes_equal_those_of_init(config, head):
    module = head(Bert(config))
    ids = draw_ids((B, 3, L) if head is MultipleChoice else (B, L))
    made = convert.flatten(started(module, ids))
    assert parameter_shapes(module) == {path: x.shape for path, x in made.items()}


def test_a_choice_is_scored_as_if_it_were_alone():
    module, ids = MultipleChoice(Bert(TINY)), draw_ids((B, 3, L))
    params = started(module, ids)
    scores = run(module, params, ids)
    assert scores.shape == (B, 3)
    alone = run(module, params, ids[1:, 2:])
    np.testing.assert_allclose(scores[1, 2], alone[0, 0], atol=1e-6)


def test_masked_lm_at_positions_equals_masked_lm_everywhere():
    module, ids = MaskedLM(Bert(TINY)), draw_ids()
    params, positions = started(module, ids), np.array([[6, 0], [2, 2]])
    everywhere = run(module, params, ids)
    there = run(module, params, ids, positions=positions)
    expected = np.take_along_axis(everywhere, positions[..., None], 1)
    np.testing.assert_allclose(there, expected, atol=1e-5)


@pytest.mark.parametrize(
    "module, shape",
    [
        (SequenceClassifier(Bert(TINY), 4), (B, 4)),
        (TokenClassifier(Bert(TINY), 4), (B, L, 4)),
        (SpanClassifier(Bert(TINY)), (B, L, 2)),
        (ReplacedTokenDetection(Bert(TINY)), (B, L)),
        (Features(Bert(TINY), has_pooler=True), (B, L, 12)),
    ],
)
def test_heads_return_float32_for_any_compute_dtype(module, shape):
    ids = draw_ids()
    params = started(module, ids)
    low = BertConfig(**vars(TINY) | {"dtype": "bfloat16"})
    outputs = run(module.clone(encoder=Bert(low)), params, ids)
    assert outputs.shape == shape and outputs.dtype == np.float32
    # 8 bits of mantissa, some tens of roundings.
    exact = run(module, params, ids)
    np.testing.assert_allclose(outputs, exact, atol=0.05 * np.abs(exact).max())


def test_a_classifier_drops_at_its_own_rate():
    still = BertConfig(
        **vars(TINY) | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    )
    ids = draw_ids()
    for rate, differs in ((0.5, True), (0.0, False), (None, False)):
        module = SequenceClassifier(Bert(still), 4, rate=rate)
        params = started(module, ids)
        key = {"dropout": jax.random.key(0)}
        noisy = run(module, params, ids, deterministic=False, rngs=key)
        assert (np.abs(noisy - run(module, params, ids)).max() > 1e-3) == differs


def test_positions_of_roberta_count_what_is_not_padding():
    encoder, ids = Bert(ROBERTA), draw_ids()
    params = started(encoder, ids)
    left, right = ids.copy(), np.roll(ids, -2, axis=1)
    left[:, :2], right[:, -2:] = 1, 1
    x = run(encoder, params, left, (left != 1).astype(int))
    y = run(encoder, params, right, (right != 1).astype(int))
    np.testing.assert_allclose(x[:, 2:], y[:, :-2], atol=1e-5)


def test_new_heads_are_those_of_the_family():
    def made(family, head, **fields):
        config = BertConfig(**vars(TINY) | {"model_type": family})
        return new_head(head, Bert(config), **fields)

    assert made("bert", SequenceClassifier, num_labels=2).hidden_act == "tanh"
    assert made("electra", SequenceClassifier, num_labels=2).drops_input
    distilled = made("distilbert", SequenceClassifier, num_labels=3, rate=0.5)
    assert (distilled.hidden_act, distilled.rate) == ("relu", 0.5)
    with pytest.raises(ValueError, match="Pretraining is published by no electra"):
        made("electra", Pretraining)


LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
ROBERTA_BASE = {"max_position_embeddings": 514, "type_vocab_size": 1}
ALBERT_BASE = {
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
MODERNBERT_LARGE = LARGE | {"num_hidden_layers": 28, "intermediate_size": 2624}
ELECTRA_BASE = {"embedding_size": 768, **ALBERT_BASE}
XLNET_BASE = {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072}
PUBLISHED = [
    ("bert", "BertModel", {}, 109_482_240),
    ("bert", "BertForMaskedLM", {}, 109_514_298),
    ("bert", "BertForPreTraining", {}, 110_106_428),
    ("bert", "BertForQuestionAnswering", {}, 108_893_186),
    ("bert", "BertForTokenClassification", {"num_labels": 9}, 108_898_569),
    ("bert", "BertForSequenceClassification", {"num_labels": 2}, 109_483_778),
    ("bert", "BertForSequenceClassification", {"num_labels": 3}, 109_484_547),
    ("bert", "BertForMultipleChoice", {}, 109_483_009),
    ("bert", "BertForPreTraining", LARGE, 336_226_108),
    ("roberta", "RobertaModel", ROBERTA_BASE, 124_645_632),
    ("roberta", "RobertaForMaskedLM", ROBERTA_BASE, 124_697_433),
    ("roberta", "RobertaModel", ROBERTA_BASE | LARGE, 355_359_744),
    ("roberta", "RobertaForMaskedLM", ROBERTA_BASE | LARGE, 355_412_057),
    ("roberta", "RobertaModel", ROBERTA_BASE | {"num_hidden_layers": 6}, 82_118_400),
    ("distilbert", "DistilBertModel", {}, 66_362_880),
    ("distilbert", "DistilBertForMaskedLM", {}, 66_985_530),
    ("distilbert", "DistilBertModel", {"vocab_size": 28996}, 65_190_912),
    ("distilbert", "DistilBertModel", {"vocab_size": 119547}, 134_734_080),
    ("albert", "AlbertModel", ALBERT_BASE, 11_683_584),
    ("albert", "AlbertForPreTraining", ALBERT_BASE, 11_813_810),
    ("albert", "AlbertModel", LARGE, 17_683_968),
    ("albert", "AlbertForPreTraining", LARGE, 17_847_474),
    (
        "albert",
        "AlbertModel",
        {"hidden_size": 2048, "intermediate_size": 8192},
        58_724_864,
    ),
    (
        "albert",
        "AlbertForPreTraining",
        {"hidden_size": 2048, "intermediate_size": 8192},
        59_021_490,
    ),
    ("albert", "AlbertModel", {}, 222_595_584),
    ("albert", "AlbertForPreTraining", {}, 223_158_450),
    ("electra", "ElectraModel", {}, 13_483_008),
    ("electra", "ElectraModel", ELECTRA_BASE, 108_891_648),
    ("electra", "ElectraModel", LARGE | {"embedding_size": 1024}, 334_092_288),
    ("electra", "ElectraModel", {"embedding_size": 768}, 33_511_168),
    ("modernbert", "ModernBertModel", {}, 149_014_272),
    ("modernbert", "ModernBertForMaskedLM", {}, 149_655_232),
    ("modernbert", "ModernBertModel", MODERNBERT_LARGE, 394_781_696),
    ("modernbert", "ModernBertForMaskedLM", MODERNBERT_LARGE, 395_881_664),
    ("xlnet", "XLNetModel", XLNET_BASE, 116_718_336),
    ("xlnet", "XLNetLMHeadModel", XLNET_BASE, 116_750_336),
    ("xlnet", "XLNetModel", {}, 360_268_800),
    ("xlnet", "XLNetLMHeadModel", {}, 360_300_800),
]


@pytest.mark.parametrize("family, architecture, changes, count", PUBLISHED)
def test_parameter_counts_are_the_published_ones(family, architecture, changes, count):
    published = {"model_type": family, "architectures": [architecture], **changes}
    family = config_json.find_family(published)
    head = config_json.find_head(published, family, ())
    encoder = config_json.encoder_config(published, family).build()
    tensors = [f"{name}.weight" for name in head.names.values()]
    module = config_json.build_head(head, published, encoder, tensors)
    shapes = parameter_shapes(module).values()
    assert sum(math.prod(shape) for shape in shapes) == count


def test_the_counts_cover_every_family():
    assert {family for family, *_ in PUBLISHED} == set(FAMILIES)
