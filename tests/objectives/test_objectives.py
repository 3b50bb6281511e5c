"""Laws of the objectives beside BERT's: ELECTRA's, distillation, left to right."""

import dataclasses
import functools
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import soak
from flax import traverse_util
from soak import ENCODER, short

import bert_jax
from bert_jax.data import pipeline
from bert_jax.data.records import RowConfig
from bert_jax.inference.model import Model
from bert_jax.models import MaskedLM, Pretraining
from bert_jax.objectives.distillation import soft_targets
from bert_jax.objectives.left_to_right import next_tokens
from bert_jax.objectives.masked_lm import mask_batch
from bert_jax.objectives.masking import Masking
from bert_jax.objectives.replaced_tokens import (
    generator_params,
    gumbel,
    replace_tokens,
)
from bert_jax.tasks import pretraining
from bert_jax.tasks.distillation import DistillationConfig, select_layers
from bert_jax.tasks.electra import ElectraConfig
from bert_jax.tasks.left_to_right import LeftToRightConfig

ROWS = RowConfig(sequence_length=32)
ELECTRA = dataclasses.replace(ENCODER, model_type="electra", embedding_size=8)
ROBERTA = dataclasses.replace(
    ENCODER,
    model_type="roberta",
    type_vocab_size=1,
    pad_token_id=1,
    position_offset=2,
    max_position_embeddings=34,
)


@pytest.fixture(scope="module")
def teacher(prepared, tmp_path_factory):
    """A BERT of three layers with the vocabulary of the rows, never trained."""
    folder = tmp_path_factory.mktemp("teacher")
    head = Pretraining(dataclasses.replace(ENCODER, num_hidden_layers=3).build())
    params = jax.jit(head.init)(jax.random.key(5), np.zeros((1, 2), int))["params"]
    tokenizer = bert_jax.tokenizers.load(prepared / "tokenizer")
    Model.of(head, params, tokenizer).save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def settings(prepared, teacher):
    """A short run of each objective, by name."""
    common = dict(prepared=str(prepared), recipe=ROWS)
    student = dataclasses.replace(ENCODER, num_hidden_layers=2)
    return {
        "electra": short(
            prepared,
            encoder=ELECTRA,
            task=ElectraConfig(**common, generator_hidden_size=0.5),
        ),
        "distillation": short(
            prepared,
            encoder=student,
            task=DistillationConfig(**common, teacher=teacher),
        ),
        "left_to_right": short(prepared, task=LeftToRightConfig(**common)),
        "ngrams": short(
            prepared,
            task=pretraining.PretrainingConfig(
                **common,
                masking=Masking(whole_words=True, ngram=3, dynamic=False),
                eval_masking=Masking(mask_share=1.0, random_share=0.0),
                nsp_weight=0.0,
            ),
        ),
    }


OTHERS = ("distillation", "electra", "ngrams")
NAMES = ("left_to_right", *OTHERS)


def slow(*values):
    """The values of a case that the quick tests leave out."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def whole(settings, tmp_path_factory):
    """The directory of an uninterrupted run of an objective; each is trained once."""

    @functools.cache
    def trained(name):
        workdir = tmp_path_factory.mktemp(name)
        bert_jax.train(settings[name], workdir)
        return workdir

    return trained


def joined(config, workdir):
    """The task with its rows, its model, random parameters and a batch."""
    config = config.task.resolve(config)
    task = config.task.prepare(workdir, config.encoder, config.seed)
    model = task.build(config.encoder.build())
    params = jax.jit(model.init)(jax.random.key(1), **task.example_batch)["params"]
    rows = pipeline.batches(task.rows["train"], batch_size=8, seed=0)
    return task, model, {**params, **task.constants}, next(iter(rows))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_ends_like_an_uninterrupted_one(name, settings, whole, tmp_path):
    # At 3, between two lines of the metrics.
    stopped = soak.killed(whole(name), tmp_path / "stopped", 3)
    bert_jax.train(settings[name], stopped)
    soak.assert_same_run(settings[name], whole(name), stopped)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_is_a_model_without_constants(name, whole):
    step = bert_jax.load(whole(name) / "checkpoints/6")
    assert not {"teacher", "generator"} & step.params.keys()
    assert step.embed(["a class"]).shape == (1, 16)


@pytest.mark.parametrize("name", ["left_to_right", *map(slow, OTHERS)])
def test_the_loss_is_a_function_of_rows_and_key(name, settings, tmp_path):
    task, model, params, batch = joined(settings[name], tmp_path)
    loss = jax.jit(lambda batch, key: task.loss(model, params, batch, key)[0])
    key = jax.random.key(3)
    first, again = loss(batch, key), loss(batch, key)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert set(task.loss_weights) <= first.keys()
    # A batch in halves has the same sums, where nothing is dropped.
    alone = jax.jit(lambda batch: task.loss(model, params, batch, None)[0])
    whole = alone(batch)
    parts = [
        alone({k: x[half] for k, x in batch.items()})
        for half in (slice(4), slice(4, 8))
    ]
    for term in task.loss_weights:
        for i in range(2):
            total = sum(float(part[term][i]) for part in parts)
            assert total == pytest.approx(float(whole[term][i]), rel=1e-4), term


def test_the_largest_logit_plus_noise_is_a_sample_of_the_softmax():
    logits = jnp.log(jnp.array([0.6, 0.25, 0.1, 0.05]))
    noise = gumbel(jax.random.key(2), (40_000, 4))
    assert np.isfinite(noise).all()
    drawn = np.bincount(np.argmax(logits[None] + noise, 1), minlength=4) / 40_000
    np.testing.assert_allclose(drawn, [0.6, 0.25, 0.1, 0.05], atol=0.01)


def test_electra_replaces_only_hidden_tokens_by_samples_of_its_generator(
    settings, tmp_path
):
    task, model, params, batch = joined(settings["electra"], tmp_path)
    hidden = mask_batch(batch, **task.masks(evaluating=False))
    sure = jnp.zeros((*hidden["positions"].shape, 300)).at[..., 77].set(1e6)
    mask_key = task.masks(evaluating=False)["mask_key"]
    ids = np.asarray(replace_tokens(batch, hidden, sure, mask_key))
    at = np.zeros(ids.shape, bool)
    rows, columns = np.nonzero(hidden["weights"])
    at[rows, np.asarray(hidden["positions"])[rows, columns]] = True
    assert (ids[at] == 77).all()
    np.testing.assert_array_equal(ids[~at], batch["input_ids"][~at])
    totals, _ = jax.jit(lambda: task.loss(model, params, batch, None))()
    assert float(totals["rtd_loss"][1]) == (batch["attention_mask"] > 0).sum()
    # Never [MASK], which the discriminator does not see in fine-tuning either.
    flat = jnp.zeros_like(sure)
    drawn = np.asarray(replace_tokens(batch, hidden, flat, mask_key))
    part = {k: x[2:5] for k, x in batch.items()}
    hidden_part = {k: x[2:5] for k, x in hidden.items()}
    again = replace_tokens(part, hidden_part, flat[2:5], mask_key)
    np.testing.assert_array_equal(again, drawn[2:5])


@pytest.mark.slow
def test_both_encoders_of_electra_share_their_embeddings(settings, whole, tmp_path):
    model = bert_jax.load(whole("electra") / "model")
    generator = bert_jax.load(whole("electra") / "generator")
    for name in ("word", "position", "token_type"):
        np.testing.assert_array_equal(
            model.params["encoder"]["embeddings"][name],
            generator.params["encoder"]["embeddings"][name],
        )
    assert generator.config.hidden_size == 8 and model.config.hidden_size == 16
    assert len(generator.fill_mask("the [MASK] of a class", k=4)[0]) == 4
    task, pair, params, batch = joined(settings["electra"], tmp_path)
    assert "word" not in params["generator"]["encoder"].get("embeddings", {})

    def masked_lm(params):
        totals, _ = task.loss(pair, params, batch, jax.random.key(0))
        return totals["mlm_loss"][0]

    # Both ways of learning reach the table; the generator learns from its own alone.
    grads = jax.jit(jax.grad(masked_lm))(params)
    assert np.abs(grads["encoder"]["embeddings"]["word"]).sum() > 0
    assert not np.abs(grads["encoder"]["layer_0"]["mlp"]["up"]["kernel"]).any()
    whole = traverse_util.flatten_dict(generator_params(params), sep="/")
    assert whole["encoder/embeddings/word"].shape == (300, 8)


def test_a_student_equal_to_its_teacher_has_no_distillation_loss(
    settings, teacher, tmp_path
):
    config = settings["distillation"]
    encoder = dataclasses.replace(ENCODER, num_hidden_layers=3)
    config = dataclasses.replace(config, encoder=encoder)
    task, model, params, batch = joined(config, tmp_path)
    params = {**params, **task.pretrained_params(teacher)}
    loss = jax.jit(lambda params: task.loss(model, params, batch, None)[0])
    totals = loss(params)
    for term in ("ce_loss", "cos_loss"):
        assert abs(float(totals[term][0] / totals[term][1])) < 1e-5
        assert float(totals[term][1]) == (batch["attention_mask"] > 0).sum()
    params = {**params, "encoder": jax.tree.map(lambda x: x * 1.1, params["encoder"])}
    totals = loss(params)
    assert float(totals["ce_loss"][0]) > 1e-3 and float(totals["cos_loss"][0]) > 1e-4


def test_a_student_begins_with_layers_from_first_to_last():
    def layers(count):
        tree = {f"layer_{i}": {"kernel": np.full((2, 2), i)} for i in range(count)}
        return {"encoder": {**tree, "embeddings": {"word": np.ones(3)}}}

    def numbers(theirs, ours):
        encoder = select_layers(layers(theirs), layers(ours), "x")["encoder"]
        return [int(encoder[f"layer_{i}"]["kernel"][0, 0]) for i in range(ours)]

    # transformers, distillation/scripts/extract_distilbert.py.
    assert numbers(12, 6) == [0, 2, 4, 7, 9, 11]
    assert numbers(3, 2) == [0, 2]
    assert numbers(4, 4) == [0, 1, 2, 3]
    assert numbers(5, 1) == [0]
    with pytest.raises(ValueError, match="layer_0/kernel is None there"):
        select_layers({"encoder": {"embeddings": {"word": np.ones(3)}}}, layers(1), "x")


def test_soft_targets_have_the_gradient_of_the_hard_loss_at_a_high_temperature():
    logits = jax.random.normal(jax.random.key(0), (5, 7))
    theirs = jax.random.normal(jax.random.key(1), (5, 7))

    def loss(x, temperature):
        return soft_targets(x, theirs, jnp.ones(5), temperature)[0]

    # Hinton et al., 2015, section 2.1: in the limit, the distance of centred logits.
    centred = (logits - theirs) - (logits - theirs).mean(1, keepdims=True)
    np.testing.assert_allclose(
        jax.grad(loss)(logits, 1e3), centred / 7, rtol=0.02, atol=2e-3
    )
    assert float(loss(theirs, 2.0)) == pytest.approx(0, abs=1e-5)


@pytest.fixture
def another_teacher(settings, tmp_path):
    """The distillation, from a teacher with other parameters."""
    config = settings["distillation"]
    teacher = bert_jax.load(config.task.teacher)
    params = jax.tree.map(lambda x: x + np.float32(1e-3), teacher.params)
    dataclasses.replace(teacher, params=params).save(tmp_path / "other")
    task = dataclasses.replace(config.task, teacher=str(tmp_path / "other"))
    return dataclasses.replace(config, task=task)


def test_another_teacher_has_another_fingerprint(settings, another_teacher, tmp_path):
    prints = [
        config.task.prepare(tmp_path, config.encoder, 0).fingerprint["teacher"]
        for config in (settings["distillation"], another_teacher)
    ]
    assert prints[0] != prints[1]


@pytest.mark.slow
def test_a_run_does_not_continue_with_another_teacher(whole, another_teacher, tmp_path):
    workdir = shutil.copytree(whole("distillation"), tmp_path / "run")
    with pytest.raises(ValueError, match="task.teacher: was"):
        bert_jax.train(another_teacher, workdir)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"teacher": None}, "task.teacher names no model"),
        ({"temperature": 0.0}, "task.temperature=0.0 must be positive"),
        ({"alpha_ce": -1.0}, "are not weights"),
        ({"nsp_weight": -1.0}, "task.nsp_weight=-1.0 must be 0 or a positive number"),
        ({"vocabulary": "x"}, "vocabulary='x' is unknown; choose one of wordpiece"),
        ({"vocabulary": "bpe"}, "keeps capitals, as RoBERTa's"),
        ({"eval_masking": Masking(rate=2.0)}, "masking.rate=2.0"),
    ],
)
def test_a_wrong_field_is_refused_before_training(settings, tmp_path, changes, message):
    config = settings["distillation"]
    task = dataclasses.replace(config.task, **changes)
    with pytest.raises(ValueError, match=message) as raised:
        bert_jax.train(dataclasses.replace(config, task=task), tmp_path / "run")
    assert len(str(raised.value).splitlines()) <= 3
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "encoder, message",
    [
        ({"hidden_size": 32}, "the teacher has hidden_size=16 and the student 32"),
        ({"intermediate_size": 20}, "does not fit the student: encoder/layer_0/mlp"),
    ],
)
def test_a_student_of_other_sizes_is_refused(settings, tmp_path, encoder, message):
    config = settings["distillation"]
    other = dataclasses.replace(config.encoder, **encoder)
    with pytest.raises(ValueError, match=message):
        bert_jax.train(dataclasses.replace(config, encoder=other), tmp_path)


def test_electra_needs_a_family_with_its_head(settings, tmp_path):
    config = dataclasses.replace(settings["electra"], encoder=ENCODER)
    with pytest.raises(ValueError, match="'bert' has no ReplacedTokenDetection head"):
        bert_jax.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_left_to_right_sees_neither_later_tokens_nor_other_sequences(
    settings, tmp_path
):
    task, model, params, batch = joined(settings["left_to_right"], tmp_path)
    mask = batch["attention_mask"]
    row = int(np.argmax((mask == 2).any(1)))
    begin = int(np.argmax(mask[row] == 2))
    middle = begin + 4
    one = {k: x[row : row + 1] for k, x in batch.items()}

    def losses(table):
        """The loss of the token at `middle` of the second sequence only."""
        changed = {**params["encoder"]["embeddings"], "position": table}
        encoder = {**params["encoder"], "embeddings": changed}
        return task.loss(
            model, {**params, "encoder": encoder}, inputs, jax.random.key(0)
        )[0]

    # Positions of its own make each token's influence visible.
    inputs = one | {"position_ids": np.arange(mask.shape[1])[None]}
    weights = next_tokens(one)["weights"]
    assert weights[0, 0] == 0 and weights[0, begin] == 0 and weights[0, middle] == 1
    only = np.zeros_like(mask[:1])
    only[0, begin : middle + 1] = 2
    inputs["attention_mask"] = only
    table = params["encoder"]["embeddings"]["position"]
    grad = jax.jit(jax.grad(lambda t: losses(t)["mlm_loss"][0]))(table)
    touched = np.flatnonzero(np.abs(grad).sum(1))
    # The last token is predicted, and not read.
    assert set(touched) <= set(range(begin, middle))


def test_static_masks_repeat_and_dynamic_masks_change(settings, prepared, tmp_path):
    common = dict(prepared=str(prepared), recipe=ROWS)
    rows = pretraining.PretrainingConfig(**common).prepare(tmp_path, ENCODER, 0)
    size = len(rows.rows["train"])
    first, later = (
        next(
            iter(
                pipeline.batches(
                    rows.rows["train"], batch_size=size, seed=0, start=start
                )
            )
        )
        for start in (0, size)
    )
    assert (first["row"] != later["row"]).any()
    for dynamic in (True, False):
        task = pretraining.PretrainingConfig(**common, masking=Masking(dynamic=dynamic))
        masks = task.prepare(tmp_path, ENCODER, 0).masks(evaluating=False)
        places = [
            np.asarray(mask_batch(batch, **masks)["positions"])[
                np.argsort(batch["row"])
            ]
            for batch in (first, later)
        ]
        assert (places[0] == places[1]).all() != dynamic


def test_pairs_need_a_family_with_their_head_and_rows_without_train_a_masked_lm(
    prepared, tmp_path
):
    config = short(prepared, encoder=dataclasses.replace(ROBERTA, type_vocab_size=2))
    with pytest.raises(ValueError, match="'roberta' has no Pretraining head; prepare"):
        bert_jax.train(config, tmp_path)
    task = dataclasses.replace(config.task, nsp_weight=0.0)
    made = task.prepare(tmp_path, ENCODER, 0)
    assert isinstance(made.build(ENCODER.build()), MaskedLM)
    assert made.loss_weights == {"mlm_loss": 1.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, encoder, pairs",
    [
        ("bpe", ROBERTA, "none"),
        slow(
            "unigram",
            dataclasses.replace(
                ENCODER, model_type="albert", num_hidden_groups=1, embedding_size=8
            ),
            "order",
        ),
    ],
)
def test_a_run_learns_its_vocabulary_and_saves_a_model_that_fills_masks(
    kind, encoder, pairs, tmp_path
):
    text = soak.language_reference(tmp_path)
    task = pretraining.PretrainingConfig(
        paths=(str(text),),
        vocabulary=kind,
        lowercase=kind != "bpe",
        recipe=dataclasses.replace(ROWS, pairs=pairs, held_out=0.2),
        masking=Masking(whole_words=True, ngram=3),
    )
    config = short(tmp_path, encoder=encoder, task=task, num_steps=2)
    model = bert_jax.train(config, tmp_path / "run")
    scores = soak.metrics(tmp_path / "run")[-1]
    assert ("nsp_loss" in scores) == (pairs == "order")
    assert {"unigram_loss", "unigram_accuracy"} <= scores.keys()
    assert bert_jax.tokenizers.KINDS[kind] is type(model.tokenizer)
    mask = model.tokenizer.id_to_token(model.tokenizer.mask_id)
    again = bert_jax.load(tmp_path / "run/model")
    assert again.config == encoder
    text = f"the {mask} of a class"
    assert again.fill_mask(text) == model.fill_mask(text)
