"""Laws of the GPT example: its attention, cache, sampling, files and runs."""

import dataclasses
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import ByteLevelBPETokenizer

import bert_jax
from bert_jax.training import resolve
from examples.gpt import __main__ as command
from examples.gpt import fine_tuning
from examples.gpt.config import get_config
from examples.gpt.fine_tuning import Marks, TaskHead, fine_tuning_totals
from examples.gpt.language_model import Characters, LanguageModel, load_tokenizer
from examples.gpt.language_modelling import LanguageModellingConfig, TextRows
from examples.gpt.model import GPTConfig, empty_cache
from examples.gpt.sampling import Sampling, generate, next_logits
from examples.gpt.text_classification import Classifier, TextClassificationConfig

TINY = GPTConfig(
    vocab_size=31,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=48,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
KINDS = {"GPT": False, "GPT-2": True}
each_kind = pytest.mark.parametrize("pre_norm", KINDS.values(), ids=KINDS)


def started(pre_norm, seed=1, **changes):
    """A module, and parameters far from their initial values."""
    model = dataclasses.replace(TINY, pre_norm=pre_norm, **changes).build()
    ids = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), ids)["params"]
    draw = np.random.default_rng(seed)
    return model, jax.tree.map(
        lambda x: draw.normal(0, 0.4, x.shape).astype(np.float32), shapes
    )


def draw_ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, TINY.vocab_size, shape)


def logits_of(model, params, ids):
    return jax.jit(lambda p, x: model.apply({"params": p}, x, method="logits"))(
        params, ids
    )


@each_kind
def test_no_score_depends_on_a_later_token(pre_norm):
    model, params = started(pre_norm)
    vectors = jax.random.normal(jax.random.key(0), (7, TINY.vocab_size))

    def scores(x):
        """Sums of the scores of seven tokens whose one-hot rows are replaced by `x`."""
        changed = {**params["embeddings"], "word": x @ params["embeddings"]["word"]}
        tree = {"params": {**params, "embeddings": changed}}
        return model.apply(tree, jnp.arange(7)[None])[0].sum(-1)

    model = dataclasses.replace(model.config, vocab_size=7).build()
    gradients = jnp.abs(jax.jit(jax.jacobian(scores))(vectors)).sum(-1)
    later = np.triu(np.ones((7, 7), bool), 1)
    assert (gradients[later] == 0).all()
    assert (gradients[~later] > 1e-4).all()


@each_kind
def test_a_cache_changes_no_score(pre_norm):
    model, params = started(pre_norm)
    ids, cache, scores = draw_ids(2, 13), empty_cache(model.config, 2), []
    run = jax.jit(lambda x, ids: model.apply(x, ids, mutable="cache", method="logits"))
    for part in np.split(ids, [4, 5, 6, 9], axis=1):
        new, variables = run({"params": params, "cache": cache}, part)
        cache = variables["cache"]
        scores.append(new)
    expected = logits_of(model, params, ids)
    np.testing.assert_allclose(np.concatenate(scores, 1), expected, atol=5e-6)


@each_kind
def test_greedy_continuations_are_those_without_a_cache(pre_norm):
    model, params = started(pre_norm)
    prompt = draw_ids(3, 5)
    tokens = generate(
        model, params, prompt, jax.random.key(0), count=11, sampling=Sampling(0)
    )
    ids = np.concatenate([prompt, tokens], axis=1)
    expected = logits_of(model, params, ids).argmax(-1)[:, 4:-1]
    np.testing.assert_array_equal(tokens, expected)


@each_kind
def test_packed_texts_do_not_see_each_other(pre_norm):
    model, params = started(pre_norm)
    ids = draw_ids(1, 9)
    mask = np.array([[1, 1, 1, 1, 2, 2, 2, 0, 0]])
    positions = np.array([[0, 1, 2, 3, 0, 1, 2, 0, 0]])
    run = jax.jit(lambda *x: model.apply({"params": params}, *x))
    packed = run(ids, mask, None, positions)
    for part in (slice(0, 4), slice(4, 7)):
        alone = run(ids[:, part])
        np.testing.assert_allclose(packed[:, part], alone, atol=1e-5)


def directly(logits, temperature, top_k, top_p):
    """The distribution by its definition, token by token."""
    p = np.exp(np.float64(logits) / temperature)
    order = np.argsort(-p)
    p[order[top_k or len(p) :]] = 0
    p /= p.sum()
    total = 0.0
    for token in order:
        if total >= top_p:
            p[token] = 0
        total += p[token]
    return p / p.sum()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("top_k, top_p", [(0, 1.0), (3, 1.0), (0, 0.7), (4, 0.8)])
def test_sampling_is_from_the_distribution_by_definition(temperature, top_k, top_p):
    logits = np.random.default_rng(top_k).normal(0, 1.5, (5, 11)).astype(np.float32)
    sampling = Sampling(temperature, top_k, top_p)
    probabilities = jax.nn.softmax(next_logits(logits, sampling))
    expected = [directly(row, temperature, top_k, top_p) for row in logits]
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)


def test_tokens_are_drawn_as_often_as_the_distribution_has_them():
    model, params = started(True)
    sampling, N = Sampling(1.3, top_k=5, top_p=0.9), 4000
    prompt = draw_ids(1, 5).repeat(N, 0)
    options = {"count": 1, "sampling": sampling}
    tokens = generate(model, params, prompt, jax.random.key(3), **options)
    counts = np.bincount(np.ravel(tokens), minlength=TINY.vocab_size)
    expected = directly(logits_of(model, params, prompt[:1])[0, -1], 1.3, 5, 0.9)
    assert 1 < (expected > 0).sum() <= 5
    deviation = np.sqrt(N * expected * (1 - expected))
    assert (abs(counts - N * expected) <= 5 * deviation).all()


def test_a_continuation_longer_than_the_context_goes_on_from_its_last_half():
    model, params = started(True, vocab_size=4)
    whole = LanguageModel(model, params, Characters("abcd"))
    text = whole.continue_text("abca", 30, temperature=0)
    assert len(text) == 30 and whole.continue_text("abca", 9, temperature=0) == text[:9]
    before = ("abca" + text)[:16][-8:]
    assert whole.continue_text(before, 8, temperature=0) == text[12:20]
    drawn = {whole.continue_text("ab", 12, seed=seed) for seed in (0, 1, 0)}
    assert len(drawn) == 2


@pytest.mark.parametrize(
    "options, message",
    [
        ({"top_p": 0.0}, r"top_p=0.0 is not in \(0, 1\]"),
        ({"top_p": 1.5}, r"top_p=1.5 is not in \(0, 1\]"),
        ({"top_k": -1}, "top_k=-1 is negative"),
        ({"temperature": -0.5}, "temperature=-0.5 is negative"),
        ({"prompt": ""}, "the prompt has 0 tokens, .* give a prompt of 1 to 15"),
        ({"prompt": "ab" * 8}, "the prompt has 16 tokens"),
        ({"prompt": "abx"}, "trained without the character 'x'"),
        ({"tokens": 0}, "ask for at least 1"),
    ],
)
def test_a_continuation_refuses_what_it_cannot_do(options, message):
    model, params = started(True, vocab_size=4)
    whole = LanguageModel(model, params, Characters("abcd"))
    with pytest.raises(ValueError, match=message):
        whole.continue_text(**{"prompt": "ab", **options})
    with pytest.raises(ValueError, match="5 tokens and 12 more do not fit .* 1 to 4"):
        key, prompt = jax.random.key(0), np.zeros((1, 5), int)
        generate(model, params, prompt, key, count=12, sampling=Sampling())


@each_kind
def test_a_saved_model_is_read_as_it_was(pre_norm, tmp_path):
    model, params = started(pre_norm)
    LanguageModel(model, params, Characters("abcd")).save(tmp_path)
    again = LanguageModel.load(tmp_path)
    assert again.model.config == model.config
    assert again.tokenizer.characters == "abcd"
    jax.tree.map(np.testing.assert_array_equal, again.params, params)


def test_a_model_that_is_not_a_gpt_is_refused(tmp_path):
    model, params = started(False)
    with pytest.raises(ValueError, match="is not a GPT with model.safetensors"):
        LanguageModel.load(tmp_path)
    LanguageModel(model, params).save(tmp_path)
    with pytest.raises(ValueError, match="the model has no tokenizer"):
        LanguageModel.load(tmp_path).continue_text("a")
    settings = json.loads((tmp_path / "config.json").read_text())
    for change, message in (
        ({"model_type": "bert"}, "model_type='bert' is unknown"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False is not supported"),
        ({"n_positions": 9}, "positions_embed.weight of model.safetensors has"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(settings | change))
        with pytest.raises(ValueError, match=message):
            LanguageModel.load(tmp_path)
    narrow = started(False, intermediate_size=20)
    with pytest.raises(ValueError, match="intermediate_size=48, or pre_norm=True"):
        LanguageModel(*narrow).save(tmp_path)


def test_the_tokenizer_of_gpt2_is_used_unchanged(tmp_path):
    library = ByteLevelBPETokenizer()
    end = "<|endoftext|>"
    library.train_from_iterator(["low lower lowest"] * 9, 262, special_tokens=[end])
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    model, params = started(True, vocab_size=262)
    LanguageModel(model, params, tokenizer).save(tmp_path / "gpt")
    settings = json.loads((tmp_path / "gpt/config.json").read_text())
    assert settings["eos_token_id"] == library.token_to_id(end) == 0
    again = LanguageModel.load(tmp_path / "gpt")
    for text in ("lower ☂", " lowest  low\n"):
        ids = library.encode(text).ids
        assert tokenizer.encode(text) == again.encode(text) == ids
        assert again.tokenizer.decode(ids) == text


def torch_logits(network, ids):
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        return network.eval()(torch.tensor(ids)).logits.numpy()


SIZES = {"n_embd": 15, "n_layer": 3, "n_head": 5, "n_positions": 11, "vocab_size": 37}


@pytest.mark.parity
@pytest.mark.parametrize(
    "name, more",
    [
        ("OpenAIGPT", {}),
        ("GPT2", {}),
        ("GPT2", {"n_inner": 23, "activation_function": "relu"}),
    ],
)
def test_models_of_transformers_give_the_same_scores(name, more, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(
        **SIZES, **more, initializer_range=0.4
    )
    network = getattr(transformers, f"{name}LMHeadModel")(config)
    with torch.no_grad():
        for tensor in network.parameters():
            tensor.add_(0.1 * torch.randn_like(tensor))  # Biases and scales, too.
    network.save_pretrained(tmp_path / "theirs")
    loaded = LanguageModel.load(tmp_path / "theirs")
    ids = np.random.default_rng(0).integers(0, 37, (3, 11))
    expected = torch_logits(network, ids)
    scores = logits_of(loaded.model, loaded.params, ids)
    np.testing.assert_allclose(scores, expected, atol=1e-5 * abs(expected).max())
    loaded.save(tmp_path / "ours")
    kind = getattr(transformers, f"{name}LMHeadModel")
    again, report = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    np.testing.assert_array_equal(torch_logits(again, ids), expected)
    greedy = again.generate(
        torch.tensor(ids[:1, :4]), do_sample=False, max_new_tokens=7, pad_token_id=0
    )
    tokens = generate(
        loaded.model,
        loaded.params,
        ids[:1, :4],
        jax.random.key(0),
        count=7,
        sampling=Sampling(0),
    )
    np.testing.assert_array_equal(greedy[0, 4:].numpy(), tokens[0])


MARKS = Marks(vocab_size=28, max_length=9)
START, BETWEEN, END = 28, 29, 30


def test_inputs_are_those_of_the_four_tasks():
    one, other = [1, 2, 3], [4, 5]
    assert fine_tuning.classification(MARKS, one) == [[START, 1, 2, 3, END]]
    pair = [START, 1, 2, 3, BETWEEN, 4, 5, END]
    assert fine_tuning.entailment(MARKS, one, other) == [pair]
    swapped = [START, 4, 5, BETWEEN, 1, 2, 3, END]
    assert fine_tuning.similarity(MARKS, one, other) == [pair, swapped]
    rows = fine_tuning.choices(MARKS, one, [other, [6]])
    assert rows == [pair, [START, 1, 2, 3, BETWEEN, 6, END]]


def test_the_longest_text_is_cut_first():
    cut = fine_tuning.entailment(MARKS, [1] * 9, [4, 5])
    assert cut == [[START, 1, 1, 1, 1, BETWEEN, 4, 5, END]]
    assert fine_tuning.classification(MARKS, [2] * 99) == [[START, *[2] * 7, END]]


def headed(num_labels, by_row=False):
    """A head on a GPT, with parameters."""
    model, params = started(False)
    draw = np.random.default_rng(2).normal(0, 1, (12, num_labels)).astype(np.float32)
    params = {"encoder": params, "score": {"kernel": draw}}
    return TaskHead(model, num_labels, by_row), params


def outputs_of(head, params, rows):
    """The outputs for rows, with the rows as `[1, S, L]` arrays."""
    ids, mask = padded(rows)
    apply = jax.jit(lambda p, *x: head.apply({"params": p}, *x))
    return apply(params, ids, mask), ids, mask


def padded(rows):
    """Rows as `[1, S, L]` arrays, with their mask."""
    ids = np.zeros((1, len(rows), 9), np.int32)
    mask = np.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[0, i, : len(row)], mask[0, i, : len(row)] = row, 1
    return ids, mask


def test_similarity_is_the_same_in_both_orders_and_entailment_is_not():
    head, params = headed(3)

    def scores(form, *texts):
        return outputs_of(head, params, form(MARKS, *texts))[0].labels

    one, other = [1, 2, 3], [4, 5]
    here, there = (one, other), (other, one)
    similar = [scores(fine_tuning.similarity, *x) for x in (here, there)]
    np.testing.assert_allclose(*similar, atol=1e-5)
    ordered = [scores(fine_tuning.entailment, *x) for x in (here, there)]
    assert abs(ordered[0] - ordered[1]).max() > 1e-3
    np.testing.assert_allclose(ordered[0] + ordered[1], similar[0], atol=1e-5)


def test_a_choice_is_scored_without_the_others():
    head, params = headed(1, by_row=True)
    answers = [[4, 5], [6], [7, 8, 9]]
    rows = fine_tuning.choices(MARKS, [1, 2], answers)
    scores = outputs_of(head, params, rows)[0].labels
    assert scores.shape == (1, 3)
    for i, answer in enumerate(answers):
        row = fine_tuning.choices(MARKS, [1, 2], [answer])
        alone = outputs_of(head, params, row)[0].labels
        np.testing.assert_allclose(alone[0, 0], scores[0, i], atol=1e-5)


def test_the_losses_are_those_of_the_label_and_of_each_next_token():
    head, params = headed(3)
    rows = fine_tuning.similarity(MARKS, [1, 2, 3], [4, 5])
    outputs, ids, mask = outputs_of(head, params, rows)
    totals = fine_tuning_totals(outputs, ids, mask, np.array([2]), np.ones(1))
    labels = jax.nn.log_softmax(outputs.labels[0])
    np.testing.assert_allclose(totals["task_loss"], (-labels[2], 1), rtol=1e-6)
    direct = 0.0
    for row in rows:
        logits = logits_of(head.encoder, params["encoder"], np.array([row]))[0]
        logs = np.asarray(jax.nn.log_softmax(logits))
        direct -= sum(logs[i, token] for i, token in enumerate(row[1:]))
    np.testing.assert_allclose(totals["lm_loss"], (direct, 14), rtol=1e-5)
    none = fine_tuning_totals(outputs, ids, mask, np.array([2]), np.zeros(1))
    assert all(float(x) == 0 for pair in none.values() for x in pair)


def test_rows_of_a_text_are_its_windows():
    ids = np.arange(20)
    rows = TextRows(ids, max_length=6, stride=1)
    assert len(rows) == 14 and rows.gather(np.array([13]))["labels"][0, -1] == 19
    blocks = TextRows(ids, max_length=6, stride=6)
    batch = blocks.gather(np.arange(len(blocks)))
    np.testing.assert_array_equal(batch["input_ids"].ravel(), np.arange(18))
    np.testing.assert_array_equal(batch["labels"], batch["input_ids"] + 1)
    assert len(TextRows(np.arange(6), 6, 1)) == len(TextRows(np.arange(6), 6, 6)) == 0


def small(name, workdir, steps, **task):
    """A run of a recipe on small files."""
    config = get_config(name)
    if config.encoder:
        sizes = {
            "vocab_size": 280,
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "max_position_embeddings": 16,
        }
        encoder = dataclasses.replace(config.encoder, **sizes)
        config = dataclasses.replace(config, encoder=encoder)
    optimizer = dataclasses.replace(
        config.optimizer, warmup_steps=2, learning_rate=1e-2
    )
    return dataclasses.replace(
        config,
        task=dataclasses.replace(config.task, **task),
        optimizer=optimizer,
        batch_size=16,
        num_steps=steps,
        eval_every=steps,
        checkpoint_every=steps,
        log_every=steps,
    )


@pytest.mark.parametrize("name", ["characters", "characters_large", "pretrain"])
def test_recipes_of_language_models_build(name, tmp_path):
    (tmp_path / "a.txt").write_text("all the text " * 9)
    config = get_config(name)
    config.task.text = str(tmp_path / "a.txt")
    resolved = resolve(config)
    resolved.encoder.build()
    if name != "pretrain":
        assert resolved.encoder.vocab_size == len(set("all the text "))
    with pytest.raises(ValueError, match="'huge' is unknown; choose one of charact"):
        get_config("huge")


@pytest.mark.parametrize(
    "content, change, message",
    [
        (None, {"text": None}, "task.text names no file"),
        (None, {}, "cannot be read"),
        (" \n", {}, "is empty; give it some text"),
        ("a b", {"held_out": 1.0}, "held_out=1.0 is not a share between 0 and 1"),
        ("abc" * 40, {}, "has 108 tokens to train on and 12 held out"),
    ],
)
def test_a_text_that_cannot_be_learnt_is_refused(content, change, message, tmp_path):
    file = tmp_path / "a.txt"
    if content is not None:
        file.write_text(content)
    task = LanguageModellingConfig(**{"text": str(file), **change})
    config = dataclasses.replace(get_config("characters"), task=task)
    with pytest.raises(ValueError, match=message):
        config = resolve(config)
        config.task.prepare(tmp_path, config.encoder, 0)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"dev": None}, "task.dev names no file"),
        ({"form": "regression"}, "task.form='regression' is unknown"),
        ({"lm_weight": -1.0}, "task.lm_weight=-1.0 at least 0"),
        ({"max_length": 17}, "max_length=17 is not between 4 and the 16 positions"),
        ({"form": "entailment"}, "has 1 text for each label, but task.form="),
    ],
)
def test_labels_that_cannot_be_learnt_are_refused(change, message, tmp_path):
    model, params = started(True, vocab_size=4)
    LanguageModel(model, params, Characters("abcd")).save(tmp_path / "gpt")
    file = tmp_path / "a.tsv"
    file.write_text("ab\tyes\ncd\tno\n")
    options = {"train": str(file), "dev": str(file), "max_length": 8, **change}
    config = dataclasses.replace(
        get_config("fine_tune"),
        init_from=str(tmp_path / "gpt"),
        task=TextClassificationConfig(**options),
    )
    with pytest.raises(ValueError, match=message):
        config = resolve(config)
        config.task.prepare(tmp_path, config.encoder, 0)


def test_the_command_continues_a_prompt(tmp_path, monkeypatch, capsys):
    model, params = started(True, vocab_size=4)
    LanguageModel(model, params, Characters("abcd")).save(tmp_path)
    arguments = ["gpt", f"--model={tmp_path}", "--tokens=4", "--temperature=0"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--prompt=ab"])
    command.main()
    expected = LanguageModel.load(tmp_path).continue_text("ab", 4, temperature=0)
    assert capsys.readouterr().out == f"ab{expected}\n"
    monkeypatch.setattr(sys, "argv", [*arguments, "--prompt=", "--top_p=0"])
    with pytest.raises(SystemExit, match=r"^top_p=0.0 is not in .*$"):
        command.main()


WORDS = "red green blue one two three and or not".split()


@pytest.mark.slow
def test_a_gpt_learns_a_text_and_then_labels(tmp_path, capsys):
    draw = np.random.default_rng(0)
    lines = [" ".join(draw.choice(WORDS, 6)) for _ in range(400)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    text = str(tmp_path / "a.txt")
    config = small("pretrain", tmp_path, 60, text=text)
    model = bert_jax.train(config, tmp_path / "gpt")
    assert model.history["scores"]["eval"]["loss"] < 3
    assert "goes on: " in capsys.readouterr().out
    for name, rows in (("train", lines[:320]), ("dev", lines[320:])):
        labelled = (f"{x}\t{'yes' if 'blue' in x else 'no'}\n" for x in rows)
        (tmp_path / f"{name}.tsv").write_text("".join(labelled))
    files = {x: str(tmp_path / f"{x}.tsv") for x in ("train", "dev")}
    config = small("fine_tune", tmp_path, 1, **files, max_length=16, epochs=10.0)
    every = {"eval_every": 0, "checkpoint_every": 0}  # an epoch
    config = dataclasses.replace(config, init_from=str(tmp_path / "gpt"), **every)
    trained = bert_jax.train(config, tmp_path / "labels")
    again = Classifier.load(tmp_path / "labels")
    probabilities = again.classify("red and blue or one")
    assert probabilities["yes"] > 0.5
    expected = trained.classify("red and blue or one")
    assert probabilities == pytest.approx(expected, abs=1e-5)


@pytest.mark.parity
def test_transformers_scores_texts_as_a_saved_classifier_does(tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    head, params = headed(3)
    marks = Marks(28, 9)
    tokenizer = Characters("".join(map(chr, range(97, 125))))
    labels = ("no", "perhaps", "yes")
    ours = Classifier(head, params, tokenizer, labels, "classification", marks)
    ours.save(tmp_path)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(theirs).__name__ == "OpenAIGPTForSequenceClassification"
    ids = torch.tensor(ours.encode("abcd"))
    with torch.no_grad():
        expected = theirs.eval()(ids).logits.softmax(-1)[0].tolist()
    values = dict(zip(labels, expected, strict=True))
    assert ours.classify("abcd") == pytest.approx(values, abs=1e-5)
