"""Laws of ablations: variants of a run, and a table of their scores."""

import dataclasses
import json

import numpy as np
import pytest
import soak
from soak import ENCODER, short
from tiny import written

from bert_jax.data.records import RowConfig
from bert_jax.objectives.masking import Masking
from bert_jax.tasks.left_to_right import LeftToRightConfig
from bert_jax.tasks.pretraining import PretrainingConfig
from examples.ablations.ablation import Ablation, format_table, format_values


def ablation(folder, **changes):
    """Two variants of two steps."""
    base = short(
        folder,
        task=PretrainingConfig(
            paths=(str(soak.language_reference(folder)),),
            recipe=RowConfig(sequence_length=32, pairs="none", held_out=0.2),
        ),
        encoder=ENCODER,
        num_steps=2,
        seeds=2,
    )
    fields = dict(
        base=base,
        variants={
            "base": lambda config: config,
            "left to right": lambda config: dataclasses.replace(
                config, task=LeftToRightConfig(**vars(config.task))
            ),
        },
    )
    return Ablation(**fields | changes)


@pytest.mark.slow
def test_all_variants_and_seeds_read_the_same_rows_and_are_in_one_table(tmp_path):
    results = ablation(tmp_path).run(tmp_path / "run")
    assert list(results) == ["base", "left to right"]
    for values in results.values():
        assert {name: len(x) for name, x in values.items()} == {
            "mlm_loss": 2,
            "mlm_accuracy": 2,
        }
    assert results["base"]["mlm_loss"] != results["left to right"]["mlm_loss"]
    assert sorted(x.name for x in (tmp_path / "run").glob("rows_*")) == ["rows_0"]
    table = (tmp_path / "run/table.md").read_text()
    assert table == format_table(results) and table.count("±") == 4
    assert json.loads((tmp_path / "run/ablation.json").read_text()) == results


@pytest.mark.slow
def test_variants_with_other_rows_share_the_vocabulary_and_can_be_fine_tuned(
    tmp_path,
):
    def order(config):
        recipe = dataclasses.replace(config.task.recipe, pairs="order")
        return dataclasses.replace(
            config, task=dataclasses.replace(config.task, recipe=recipe)
        )

    one = ablation(
        tmp_path,
        variants={"none": lambda config: config, "order": order},
        train=str(written(tmp_path / "train.tsv", 16, 0)),
        dev=str(written(tmp_path / "dev.tsv", 8, 1)),
        epochs=1.0,
        scores=("nsp_accuracy",),
    )
    one.base.seeds = 1
    results = one.run(tmp_path / "run")
    assert {name: list(x) for name, x in results.items()} == {
        "none": ["dev_accuracy"],
        "order": ["nsp_accuracy", "dev_accuracy"],
    }
    tokenizers = (tmp_path / "run").glob("rows_*/tokenizer/vocab.txt")
    assert len({x.read_text() for x in tokenizers}) == 1


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"train": "a.tsv"}, "train and dev go together"),
        ({"train": "a.tsv", "dev": "b.tsv"}, "a left-to-right model cannot be"),
        (
            {
                "variants": {
                    "none": lambda config: dataclasses.replace(
                        config, task=PretrainingConfig(masking=Masking(rate=0.0))
                    )
                }
            },
            "masking.rate=0.0",
        ),
    ],
)
def test_a_wrong_field_is_refused_before_training(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        ablation(tmp_path, **changes).run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_table_gives_the_sample_deviation():
    values = [0.25, 0.5, 0.75]
    assert format_values(values) == f"0.5000 ± {np.std(values, ddof=1):.4f} (3)"
    assert format_values([0.25]) == "0.2500"
