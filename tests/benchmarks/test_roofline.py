"""Laws of the estimate of step time on TPUs."""

import pytest

from benchmarks.roofline import CHIPS, Work, estimate, rate

# BERT-large at 512 tokens: parameters, and FLOPs of a token with 76 predictions a row.
PARAMETERS = 335.2e6
TOKEN = 6 * 301.99e6 + 12 * 24 * 1024 * 512 + 76 / 512 * 6 * (1024**2 + 1024 * 30522)

# Worked by hand: chip, torus, tokens a chip, efficiency with the update cut over the
# chips in percent; bfloat16 gradients.
WORKED = [
    ("v4", (2, 2, 1), 8192, 98.3),
    ("v4", (2, 2, 4), 8192, 99.6),
    ("v4", (4, 4, 4), 8192, 99.9),
    ("v4", (2, 2, 1), 2048, 93.4),
    ("v4", (2, 2, 4), 2048, 98.3),
    ("v4", (2, 2, 1), 512, 47),
    ("v4", (2, 2, 4), 512, 74),
    ("v4", (4, 4, 4), 512, 98.3),
    ("v4", (4, 8, 8), 512, 99.3),
    ("v4", (16, 16, 16), 512, 99.1),
    ("v5e", (2, 2), 4096, 96.4),
    ("v5e", (4, 4), 4096, 99.1),
    ("v5e", (8, 8), 4096, 99.8),
    ("v6e", (2, 2), 8192, 95.9),
    ("v6e", (16, 16), 8192, 99.9),
]
# The same at any number of chips where each of them updates all.
WHOLE = [("v4", 512, 47), ("v4", 2048, 78), ("v5e", 4096, 87), ("v6e", 8192, 85)]


def step(chip, torus, tokens, divided=True, model_bytes=0.0):
    copies = 1
    for n in torus:
        copies *= n
    updated = PARAMETERS / (copies if divided else 1)
    work = Work(tokens * TOKEN, updated, 4 * PARAMETERS, model_bytes, copies)
    return estimate(CHIPS[chip], torus, work)


@pytest.mark.parametrize("chip, torus, tokens, percent", WORKED)
def test_the_model_gives_what_was_worked_by_hand(chip, torus, tokens, percent):
    # To the digits that were written down, from rounded parts.
    digits = 0.5 if isinstance(percent, int) else 0.2
    result = 100 * step(chip, torus, tokens).efficiency
    assert result == pytest.approx(percent, abs=digits)


@pytest.mark.parametrize("chip, tokens, percent", WHOLE)
def test_an_update_that_is_not_divided_costs_the_same_on_many_chips(
    chip, tokens, percent
):
    torus = CHIPS[chip].tori[256]
    result = 100 * step(chip, torus, tokens, divided=False).efficiency
    assert result == pytest.approx(percent, abs=0.6)


def test_what_crosses_the_model_axis_hides_behind_nothing():
    chip, tokens = CHIPS["v4"], 8192
    alone = step("v4", (4, 4, 4), tokens)
    beside = step("v4", (4, 4, 4), tokens, model_bytes=1e9)
    assert alone.exposed == 0
    assert beside.seconds - alone.seconds == pytest.approx(1e9 / chip.axis_rate)


def test_an_axis_without_a_way_round_has_half_the_rate():
    chip = CHIPS["v5e"]
    assert rate(chip, (2, 4)) == pytest.approx(1.5 * chip.axis_rate)
    assert rate(chip, (1, 4)) == pytest.approx(chip.axis_rate)
