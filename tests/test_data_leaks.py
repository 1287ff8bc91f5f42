"""Suspected leaks: what gives the label away is found, what is merely strong is not."""

import numpy as np
import pytest

from fedjax_fraud.data.leaks import suspected_leaks

RNG = np.random.default_rng(0)
NUM_ROWS, NUM_FRAUDS = 4000, 80
LABELS = (np.arange(NUM_ROWS) < NUM_FRAUDS).astype(np.int32)
NOISE = RNG.lognormal(8, 1, NUM_ROWS).astype(np.float32)


def found_in(numbers=None, categories=None, beginnings=None, labels=LABELS):
    return suspected_leaks(numbers or {}, categories or {}, beginnings or {}, labels)


def only(leaks):
    (leak,) = leaks
    return leak


def test_a_column_filled_in_after_the_fact_is_found_with_its_values():
    scenario = np.where(LABELS == 1, 1 + np.arange(NUM_ROWS) % 3, 0).astype(np.float32)
    leak = only(found_in({"scenario": scenario, "noise": NOISE}))
    assert (leak.column, leak.rule, leak.recall, leak.precision) == ("scenario", "scenario = 1 or 2 or 3", 1.0, 1.0)


def test_a_flag_that_is_rare_but_never_wrong_is_found():
    flag = (np.arange(NUM_ROWS) < 6).astype(np.float32)
    leak = only(found_in({"flagged": flag}))
    assert (leak.rule, leak.recall, leak.precision) == ("flagged = 1", 6 / NUM_FRAUDS, 1.0)


def test_a_flag_of_fewer_than_five_frauds_is_an_accident():
    assert found_in({"flagged": (np.arange(NUM_ROWS) < 4).astype(np.float32)}) == []


def test_a_pure_value_is_no_leak_where_chance_explains_it():
    """At a prevalence of one half, six frauds in a row happen in 1 of 64 values."""
    labels = (np.arange(400) % 2).astype(np.int32)
    value = np.zeros(400, np.float32)
    value[np.flatnonzero(labels)[:6]] = 7
    assert found_in({"code": value}, labels=labels) == []
    value[np.flatnonzero(labels)[:60]] = 7
    assert only(found_in({"code": value}, labels=labels)).rule == "code = 7"


def test_money_that_only_frauds_have_is_a_threshold():
    loss = np.where(LABELS == 1, NOISE, 0).astype(np.float32)
    leak = only(found_in({"loss": loss}))
    assert leak.rule.startswith("loss >= ") and leak.recall >= 0.95 and leak.precision == 1.0
    assert only(found_in({"gain": -loss})).rule.startswith("gain <= ")


def test_a_date_that_only_frauds_have_is_found_by_its_gaps():
    closed = np.where(LABELS == 1, NOISE, np.nan).astype(np.float32)
    assert only(found_in({"closed": closed})).rule == "closed = any value"


def test_an_amount_that_takes_the_whole_balance_is_found_as_a_pair():
    balance = RNG.lognormal(8, 1, NUM_ROWS).astype(np.float32)
    balance[:78] = NOISE[:78]
    both_zero = np.arange(NUM_ROWS) > 2000
    amount, balance = np.where(both_zero, 0, NOISE), np.where(both_zero, 0, balance)
    leak = only(found_in({"amount": amount, "balance": balance}))
    assert (leak.rule, leak.recall, leak.precision) == ("amount = balance, not 0", 78 / NUM_FRAUDS, 1.0)


def test_a_category_is_named_by_its_word():
    leak = only(
        found_in(categories={"status": (LABELS.astype(np.int64) - (np.arange(NUM_ROWS) % 7 == 1), ["open", "closed"])})
    )
    assert leak.rule == "status = closed" and leak.precision == 1.0


def test_the_beginning_of_an_account_is_found_and_is_no_feature():
    begins = np.where(np.arange(NUM_ROWS) < 40, "CC", np.where(NOISE > 3000, "C1", "C2"))
    leak = only(found_in(beginnings={"origin": begins}))
    assert (leak.rule, leak.recall, leak.is_feature) == ("origin begins with CC", 0.5, False)


@pytest.mark.parametrize("strength", [1.0, 2.0, 3.0, 4.0])
def test_a_strong_honest_feature_is_no_leak(strength):
    """Normal scores whose means lie up to four deviations apart: a ROC-AUC up to 0.998."""
    values = RNG.normal(size=NUM_ROWS).astype(np.float32) + strength * LABELS.astype(np.float32)
    assert found_in({"score": values, "noise": NOISE}) == []


def test_a_tail_that_is_pure_but_finds_few_is_no_leak():
    amount = np.where(LABELS == 1, NOISE * 3, NOISE)
    amount[:9] = 1e9
    assert found_in({"amount": amount.astype(np.float32)}) == []


def test_without_frauds_enough_nothing_is_said():
    assert found_in({"x": NOISE}, labels=np.zeros(NUM_ROWS, np.int32)) == []
    assert found_in({"x": NOISE}, labels=np.ones(NUM_ROWS, np.int32)) == []
