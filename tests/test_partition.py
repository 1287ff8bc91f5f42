"""Partitions: every row once, the skew that was asked for, and nothing outside touched."""

import random

import chex
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest

from fedjax_fraud import partition

NUM_ROWS = 400
LABELS = (np.arange(NUM_ROWS) % 50 == 0).astype(np.int32)  # 8 positives
AMOUNT = np.random.default_rng(0).lognormal(5, 2, NUM_ROWS)

MAKERS = {
    "dirichlet_labels": lambda clients, alpha, seed: partition.dirichlet_labels(LABELS, clients, alpha, seed),
    "dirichlet_feature": lambda clients, alpha, seed: partition.dirichlet_feature(AMOUNT, clients, alpha, seed),
    "dirichlet_quantity": lambda clients, alpha, seed: partition.dirichlet_quantity(NUM_ROWS, clients, alpha, seed),
    "iid": lambda clients, alpha, seed: partition.iid(NUM_ROWS, clients, seed),
}
WITH_ALPHA = sorted(set(MAKERS) - {"iid"})

sizes = st.integers(1, 30)
alphas = st.sampled_from([1e-4, 1e-2, 0.1, 1.0, 100.0, 1e12])
seeds = st.integers(0, 2**63)


def assert_every_row_once(made, num_rows, num_clients):
    chex.assert_trees_all_equal(np.sort(made.order), np.arange(num_rows, dtype=np.int32), strict=True)
    chex.assert_trees_all_equal(made.start, (np.cumsum(made.count) - made.count).astype(np.int32), strict=True)
    assert made.count.shape == (num_clients,) and made.count.min() >= 0
    assert made.order.dtype == made.start.dtype == made.count.dtype == np.int32


# --- laws -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAKERS)
@hypothesis.given(sizes, alphas, seeds)
def test_every_row_is_assigned_once_and_a_seed_gives_one_partition(name, num_clients, alpha, seed):
    made = MAKERS[name](num_clients, alpha, seed)
    assert_every_row_once(made, NUM_ROWS, num_clients)
    chex.assert_trees_all_equal(made, MAKERS[name](num_clients, alpha, seed), strict=True)


@pytest.mark.parametrize("name", MAKERS)
def test_different_seeds_give_different_partitions(name):
    owners = {partition.client_of(MAKERS[name](5, 1.0, seed)).tobytes() for seed in range(20)}
    assert len(owners) == 20


@pytest.mark.parametrize("name", MAKERS)
def test_the_global_generators_are_neither_read_nor_moved(name):
    made = []
    for state in (0, 1):
        np.random.seed(state)
        random.seed(state)
        before = np.random.get_state()[1:], random.getstate()
        made.append(MAKERS[name](5, 0.1, 7))
        chex.assert_trees_all_equal((np.random.get_state()[1:], random.getstate()), before)
    chex.assert_trees_all_equal(*made, strict=True)


@hypothesis.given(st.lists(st.sampled_from(["north", "south", "west"]), min_size=1, max_size=30))
def test_natural_clients_hold_exactly_their_own_rows(silo):
    made = partition.natural(silo)
    names = sorted(set(silo))
    assert_every_row_once(made, len(silo), len(names))
    assert [names[client] for client in partition.client_of(made)] == silo


@pytest.mark.parametrize("name", MAKERS)
def test_client_of_inverts_the_partition_and_rows_stay_in_table_order(name):
    made = MAKERS[name](6, 0.5, 3)
    owner = partition.client_of(made)
    for client, (start, count) in enumerate(zip(made.start, made.count, strict=True)):
        rows = made.order[start : start + count]
        chex.assert_trees_all_equal(rows, np.flatnonzero(owner == client).astype(np.int32), strict=True)


# --- Dirichlet ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1e-1, 1e-2, 1e-3, 1e-4])
def test_proportions_are_finite_and_sum_to_one_at_tiny_alpha(alpha):
    shares = np.stack([partition.dirichlet_proportions(2, 10, alpha, seed) for seed in range(200)])
    chex.assert_tree_all_finite(shares)
    chex.assert_trees_all_close(shares.sum(-1), np.ones((200, 2)), atol=1e-6, strict=True)
    for seed in range(200):
        assert_every_row_once(partition.dirichlet_labels(LABELS, 10, alpha, seed), NUM_ROWS, 10)


@pytest.mark.parametrize("alpha, expected", [(0.1, 0.12583), (1, 0.04756), (100, 0.00487)])
def test_a_clients_share_of_a_class_has_the_standard_deviation_of_the_per_class_family(alpha, expected):
    num_clients, num_seeds = 20, 50
    labels = np.zeros(100_000, np.int32)
    counts = np.stack([partition.dirichlet_labels(labels, num_clients, alpha, s).count for s in range(num_seeds)])
    shares = counts / len(labels)
    assert (counts.sum(1) == len(labels)).all()
    # The mean squared deviation of a seed's 20 shares averages over 50 independent seeds; its own spread gives the
    # error of that average, of which four are allowed. A square root halves a relative error.
    variance = np.mean((shares - 1 / num_clients) ** 2, axis=1)
    relative_error = variance.std() / np.sqrt(num_seeds) / variance.mean()
    assert np.sqrt(variance.mean()) == pytest.approx(expected, rel=4 * relative_error / 2)


def test_train_and_test_tables_get_the_same_proportions():
    num_clients, alpha, seed = 7, 0.3, 11
    shares = partition.dirichlet_proportions(2, num_clients, alpha, seed)
    for labels in (np.repeat([0, 1], [90_000, 1_000]), np.repeat([1, 0], [300, 20_000]), np.zeros(500, int)):
        owner = partition.client_of(partition.dirichlet_labels(labels, num_clients, alpha, seed))
        for label in np.unique(labels):
            count = np.bincount(owner[labels == label], minlength=num_clients)
            # Largest remainders: no client is a whole row away from its ideal.
            assert np.abs(count - shares[label] * np.sum(labels == label)).max() < 1


def test_train_and_test_tables_get_the_same_proportions_of_a_feature():
    train = np.repeat(["CASH_OUT", "PAYMENT", "TRANSFER"], [5_000, 9_000, 3_000])
    test = np.repeat(["TRANSFER", "CASH_OUT"], [800, 700])
    shares = partition.dirichlet_proportions(3, 4, 0.5, 2)
    for values in (train, test):
        made = partition.dirichlet_feature(values, 4, 0.5, 2, reference=train)
        for code, kind in enumerate(["CASH_OUT", "PAYMENT", "TRANSFER"]):
            count = np.bincount(partition.client_of(made)[values == kind], minlength=4)
            assert np.abs(count - shares[code] * np.sum(values == kind)).max() < 1


def test_the_first_proportions_do_not_depend_on_how_many_follow():
    some, more = (partition.dirichlet_proportions(n, 5, 0.05, 3) for n in (2, 9))
    chex.assert_trees_all_equal(some, more[:2], strict=True)


def test_remainders_go_to_the_largest_fractions_and_ties_to_the_lower_client():
    split = partition._split_counts
    chex.assert_trees_all_equal(split(np.array([0.26, 0.29, 0.45]), 10), np.array([3, 3, 4]), strict=True)
    chex.assert_trees_all_equal(split(np.array([0.25] * 4), 10), np.array([3, 3, 2, 2]), strict=True)
    chex.assert_trees_all_equal(split(np.array([0.0, 1.0]), 3), np.array([0, 3]), strict=True)
    chex.assert_trees_all_equal(split(np.array([0.5, 0.5]), 0), np.array([0, 0]), strict=True)


def test_small_alpha_is_more_skewed_than_large_alpha():
    def skew(alpha):
        return np.mean(
            [partition.summary(MAKERS["dirichlet_labels"](5, alpha, s), LABELS).tvd.mean() for s in range(20)]
        )

    assert skew(0.1) > skew(1.0) > skew(100.0)


def test_quantity_skew_leaves_prevalence_alone_and_iid_sizes_differ_by_at_most_one():
    labels = np.arange(60_000) % 4 == 0
    table = partition.summary(partition.dirichlet_quantity(len(labels), 4, 5.0, 0), labels)
    # Four standard errors of a sampled share.
    assert (np.abs(table.prevalence - 0.25) < 4 * np.sqrt(0.25 * 0.75 / table.num_examples)).all()
    chex.assert_trees_all_equal(partition.iid(11, 4, 0).count, np.array([3, 3, 3, 2], np.int32), strict=True)


# --- bins and names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values, expected",
    [
        (["b", "a", "b"], [1, 0, 1]),
        (np.array(["b", "a"], object), [1, 0]),
        (pd.Series(["b", "a"], dtype="category"), [1, 0]),
        (np.array([True, False]), [1, 0]),
        ([7, 3, 7], [1, 0, 1]),
        ([1.5, 1.5, 1.5], [0, 0, 0]),
    ],
)
def test_bins_of_categories_are_numbered_in_sorted_order(values, expected):
    chex.assert_trees_all_equal(partition.feature_bins(values), np.int32(expected), strict=True)


def test_numbers_are_cut_at_the_quantiles_of_the_reference():
    reference = np.arange(100.0)
    chex.assert_trees_all_equal(np.bincount(partition.feature_bins(reference, 4)), np.array([24, 25, 25, 26]))
    codes = partition.feature_bins([-1e9, 24.0, 1e9, np.inf], 4, reference)
    chex.assert_trees_all_equal(codes, np.int32([0, 1, 3, 3]), strict=True)


def test_integers_with_many_values_are_cut_and_equal_values_share_a_bin():
    hours = np.arange(240) % 24
    codes = partition.feature_bins(hours, 8)
    assert len(np.unique(codes)) == 8
    assert all(len(np.unique(codes[hours == hour])) == 1 for hour in range(24))


def test_explicit_edges_cut_at_and_below_each_edge():
    codes = partition.feature_bins([0, 9, 10, 11, 99], edges=[10, 50])
    chex.assert_trees_all_equal(codes, np.int32([0, 0, 1, 1, 2]), strict=True)


def test_names_fix_the_client_numbers_of_a_test_table():
    made = partition.natural(["west", "west"], names=["north", "south", "west"])
    chex.assert_trees_all_equal(made.count, np.int32([0, 0, 2]), strict=True)


# --- a minimum of frauds --------------------------------------------------------------------------------------------


def taken_one_by_one(count, least):
    """The rule as it is told: fraud by fraud, from the first of those that have most, to the first that is short."""
    count = count.copy()
    while count.min() < least:
        count[count.argmax()] -= 1
        count[(count < least).argmax()] += 1
    return count


@hypothesis.given(st.integers(1, 8), alphas, seeds, st.integers(0, 8))
def test_every_client_has_the_minimum_and_only_the_frauds_that_must_move_do(num_clients, alpha, seed, least):
    least = min(least, 8 // num_clients)
    plain = partition.dirichlet_labels(LABELS, num_clients, alpha, seed)
    made = partition.dirichlet_labels(LABELS, num_clients, alpha, seed, min_positives=least)
    assert_every_row_once(made, NUM_ROWS, num_clients)
    before, after = (partition.client_of(rows) for rows in (plain, made))
    assert (before == after)[LABELS == 0].all()
    old, new = (np.bincount(owner[LABELS == 1], minlength=num_clients) for owner in (before, after))
    assert new.min() >= least
    chex.assert_trees_all_equal(new, taken_one_by_one(old, least))
    assert np.sum(before != after) == np.maximum(least - old, 0).sum()


def test_a_minimum_that_the_draw_meets_changes_nothing():
    for seed in range(10):
        plain = partition.dirichlet_labels(LABELS, 3, 100.0, seed)
        chex.assert_trees_all_equal(partition.dirichlet_labels(LABELS, 3, 100.0, seed, min_positives=1), plain)


def test_as_many_as_all_frauds_allow_is_an_even_split_and_one_more_is_refused():
    made = partition.dirichlet_labels(LABELS, 4, 0.01, 0, min_positives=2)
    assert partition.summary(made, LABELS).num_positives.tolist() == [2, 2, 2, 2]
    with pytest.raises(ValueError, match="`min_positives` must be at most 2, what 8 frauds allow 4 clients, got 3"):
        partition.dirichlet_labels(LABELS, 4, 0.01, 0, min_positives=3)


@pytest.mark.parametrize("least", [-1, 1.0, True, None])
def test_a_minimum_that_is_no_natural_number_raises(least):
    with pytest.raises(ValueError, match="`min_positives`"):
        partition.dirichlet_labels(LABELS, 2, 1.0, 0, min_positives=least)


# --- banks made to measure ------------------------------------------------------------------------------------------

weights = st.lists(st.integers(1, 20), min_size=1, max_size=6)


@hypothesis.given(weights, seeds, st.data())
def test_sizes_and_ratios_of_fraud_rates_are_as_asked(sizes, seed, data):
    num_clients = len(sizes)
    rates = data.draw(st.lists(st.integers(1, 5), min_size=num_clients, max_size=num_clients))
    sizes = np.array(sizes) / sum(sizes)
    made = partition.controlled(LABELS, sizes, rates, seed)
    assert_every_row_once(made, NUM_ROWS, num_clients)
    assert np.abs(made.count - NUM_ROWS * sizes).max() < 1
    wanted = made.count * np.array(rates)
    positives = partition.summary(made, LABELS).num_positives
    assert np.abs(positives - 8 * wanted / wanted.sum()).max() < 1


@hypothesis.given(weights, seeds, st.data())
def test_mixes_that_the_table_can_give_are_given(frauds, seed, data):
    """A table made from the mixes: banks x kinds counts of frauds."""
    num_kinds = data.draw(st.integers(1, 4))
    count = np.array(
        data.draw(
            st.lists(
                st.lists(st.integers(1, 9), min_size=num_kinds, max_size=num_kinds),
                min_size=len(frauds),
                max_size=len(frauds),
            )
        )
    )
    kinds = np.concatenate([np.repeat(np.arange(num_kinds), count.sum(axis=0)), np.full(500, 7)])
    labels = (np.arange(len(kinds)) < count.sum()).astype(int)
    sizes = (count.sum(axis=1) + 100) / (count.sum() + 100 * len(count))
    rates = count.sum(axis=1) / np.round(sizes * len(labels))
    made = partition.controlled(labels, sizes, rates, seed, kinds, count / count.sum(axis=1, keepdims=True))
    assert_every_row_once(made, len(labels), len(count))
    owner = partition.client_of(made)
    for kind in range(num_kinds):
        found = np.bincount(owner[(labels == 1) & (kinds == kind)], minlength=len(count))
        assert np.abs(found - count[:, kind]).max() <= 1  # sizes are rounded, so rates are


def test_mixes_keep_their_odds_where_the_table_has_other_numbers_of_each_kind():
    kinds = np.repeat([0, 1, 0], [300, 100, 3_600])
    labels = np.repeat([1, 1, 0], [300, 100, 3_600])
    made = partition.controlled(labels, [0.5, 0.5], [1, 1], 0, kinds, [[4, 1], [1, 1]])
    table = partition.summary(made, labels, kinds)
    assert table.num_examples.tolist() == [2_000, 2_000]
    assert np.abs(table.num_positives - 200).max() <= 2
    odds = table.kind_0 / table.kind_1
    assert odds[0] / odds[1] == pytest.approx(4, rel=0.1)


def test_a_kind_of_weight_zero_is_never_seen():
    kinds = np.tile([0, 1, 2], 100)
    made = partition.controlled(np.ones(300), [0.5, 0.5], [1, 1], 3, kinds, [[1, 1, 0], [1, 0.1, 5]])
    table = partition.summary(made, np.ones(300), kinds)
    assert table.kind_2.tolist()[0] == 0 and table.num_positives.tolist() == [150, 150]


def test_absolute_rates_that_add_up_are_taken_as_they_are():
    labels = np.arange(1_000) < 40
    made = partition.controlled(labels, [0.5, 0.3, 0.2], [0.06, 0.02, 0.02], 0, relative=False)
    assert partition.summary(made, labels).num_positives.tolist() == [30, 6, 4]


def test_the_seed_chooses_rows_and_not_numbers():
    made = [partition.controlled(LABELS, [0.7, 0.3], [1, 2], seed) for seed in (0, 1)]
    assert made[0].count.tolist() == made[1].count.tolist()
    assert partition.client_of(made[0]).tolist() != partition.client_of(made[1]).tolist()
    chex.assert_trees_all_equal(made[0], partition.controlled(LABELS, [0.7, 0.3], [1, 2], 0), strict=True)


def test_a_table_without_fraud_can_be_dealt():
    made = partition.controlled(np.zeros(10), [0.6, 0.4], [0.1, 0.2], 0)
    assert made.count.tolist() == [6, 4]


HALF = np.repeat([1, 0], [50, 50])
TWO_KINDS = np.tile([0, 1], 50)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: partition.controlled(HALF, [0.9, 0.2], [1, 1], 0), "`sizes` must be shares with sum 1, got .* 1.1"),
        (
            lambda: partition.controlled(HALF, [1.5, -0.5], [1, 1], 0),
            "`sizes` must be finite and > 0, got -0.5 for bank 1",
        ),
        (lambda: partition.controlled(HALF, [0.5, 0.5], [1], 0), "`prevalences` must have one entry for each of the 2"),
        (lambda: partition.controlled(HALF, [0.5, 0.5], [1, -1], 0), "`prevalences` must be .* got -1.0 for bank 1"),
        (lambda: partition.controlled(HALF, [0.5, 0.5], [0, 0], 0), "`prevalences` must not all be 0"),
        (lambda: partition.controlled(HALF, [0.5, 0.5], ["a", "b"], 0), "`prevalences` must hold a number"),
        (
            lambda: partition.controlled(HALF, [0.2, 0.8], [9, 1], 0),
            "give bank 0 34.6154 frauds, but its size is 20 rows",
        ),
        (
            lambda: partition.controlled(HALF, [0.5, 0.5], [0.6, 0.6], 0, relative=False),
            "ask for 30 frauds in bank 1, but 20 of 50 are left.*relative=True",
        ),
        (
            lambda: partition.controlled(HALF, [0.5, 0.5], [0.4, 0.4], 0, relative=False),
            "leave 10 of 50 frauds without a bank",
        ),
        (
            lambda: partition.controlled(HALF, [0.6, 0.4], [1, 1], 0, TWO_KINDS, [[1, 0], [1, 0]]),
            "`mixes` ask for 30 frauds of kinds .0. in bank 0; the table has 25, of which 15 can go there",
        ),
        (lambda: partition.controlled(HALF, [0.5, 0.5], [1, 1], 0, TWO_KINDS), "`kinds` and `mixes` go together"),
        (lambda: partition.controlled(HALF, [0.5, 0.5], [1, 1], 0, TWO_KINDS, [[1], [1]]), "`mixes` must be numbers"),
        (
            lambda: partition.controlled(HALF, [0.5, 0.5], [1, 1], 0, TWO_KINDS, [[1, 1], [0, 0]]),
            "`mixes` must be finite, >= 0 and not all 0, got .* for bank 1",
        ),
        (lambda: partition.controlled(HALF, [1.0], [1], 0, TWO_KINDS[:9], [[1, 1]]), "`kinds` must be integers"),
        (lambda: partition.controlled(HALF, [1.0], [1], 0, TWO_KINDS - 1, [[1, 1]]), "`kinds` must be >= 0, got -1"),
        (lambda: partition.controlled(HALF, [1.0], [1], -1), "`seed`"),
    ],
)
def test_what_cannot_be_controlled_is_refused_on_one_line(make, message):
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


# --- summary --------------------------------------------------------------------------------------------------------


def test_a_summary_worked_by_hand():
    # Client 0: 1 of 4 positive, client 1: 3 of 4, client 2: none of 8, client 3: no rows; overall 4 of 16.
    silo = np.repeat([0, 1, 2], [4, 4, 8])
    labels = np.array([1, 0, 0, 0, 1, 1, 1, 0, *[0] * 8])
    table = partition.summary(partition.natural(silo, names=[0, 1, 2, 3]), labels)
    shares = ["share_of_rows", "share_of_positives"]
    assert table.columns.tolist() == ["client", "num_examples", "num_positives", "prevalence", "kl", "tvd", *shares]
    assert table.share_of_rows.tolist() == [0.25, 0.25, 0.5, 0]
    assert table.share_of_positives.tolist() == [0.25, 0.75, 0, 0]
    assert table.client.tolist() == [0, 1, 2, 3]
    assert table.num_examples.tolist() == [4, 4, 8, 0]
    assert table.num_positives.tolist() == [1, 3, 0, 0]
    kl = [0, 0.75 * np.log(3) + 0.25 * np.log(1 / 3), np.log(4 / 3), np.nan]
    chex.assert_trees_all_close(table.kl.to_numpy(), np.array(kl), atol=1e-10, strict=True)
    chex.assert_trees_all_close(table.prevalence.to_numpy(), np.array([0.25, 0.75, 0, np.nan]), strict=True)
    chex.assert_trees_all_close(table.tvd.to_numpy(), np.array([0, 0.5, 0.25, np.nan]), strict=True)


def test_kl_is_finite_for_a_client_with_a_class_that_is_absent_elsewhere():
    labels = np.array([1, 0, 0, 0])
    table = partition.summary(partition.natural([0, 1, 1, 1]), labels)
    chex.assert_trees_all_close(table.kl.to_numpy(), np.log([4, 4 / 3]), atol=1e-10, strict=True)


def test_few_positives_over_many_clients_leave_some_with_none_and_the_summary_says_so():
    for seed in range(20):
        table = partition.summary(partition.dirichlet_labels(LABELS, 20, 0.1, seed), LABELS)
        empty = table.num_examples == 0
        assert table.num_positives.sum() == 8 and (table.num_positives == 0).any()
        assert (table.prevalence.isna() == empty).all() and (table.tvd.isna() == empty).all()
        assert np.isfinite(table.kl[~empty]).all()


def test_a_summary_with_kinds_has_each_kinds_share_of_a_clients_frauds():
    labels, kinds = [1, 1, 1, 0, 1, 0], [0, 2, 2, 9, 0, 9]
    table = partition.summary(partition.natural([0, 0, 0, 0, 1, 2]), labels, kinds)
    assert table.columns.tolist()[-3:] == ["kind_0", "kind_1", "kind_2"]
    np.testing.assert_allclose(table.kind_0, [1 / 3, 1, np.nan])
    np.testing.assert_allclose(table.kind_2, [2 / 3, 0, np.nan])
    np.testing.assert_allclose(table.share_of_positives, [0.75, 0.25, 0])


def test_a_summary_of_one_class_only_has_no_divergence():
    table = partition.summary(partition.iid(10, 3, 0), np.zeros(10))
    chex.assert_trees_all_close(
        table[["prevalence", "kl", "tvd"]].to_numpy(), np.zeros((3, 3)), atol=1e-12, strict=True
    )


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_ALPHA)
@pytest.mark.parametrize("alpha", [0, -1, float("nan"), float("inf"), "0.5", True, None])
def test_an_alpha_that_is_no_positive_number_raises(name, alpha):
    with pytest.raises(ValueError, match="`alpha`"):
        MAKERS[name](3, alpha, 0)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("num_clients", [0, -1, 2.0, "3", True, NUM_ROWS + 1])
def test_an_impossible_number_of_clients_raises(name, num_clients):
    with pytest.raises(ValueError, match="`num_clients`"):
        MAKERS[name](num_clients, 1.0, 0)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_a_seed_that_is_no_natural_number_raises(name, seed):
    with pytest.raises(ValueError, match="`seed`"):
        MAKERS[name](3, 1.0, seed)


@pytest.mark.parametrize("labels", [[], [0, 2], [0, -1], [0.5, 1], [0, float("nan")], ["0", "1"], [[0, 1]]])
def test_labels_other_than_zero_and_one_raise(labels):
    with pytest.raises(ValueError, match="`labels`"):
        partition.dirichlet_labels(labels, 1, 1.0, 0)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: partition.feature_bins(["a", "z"], reference=["a", "b"]), "'z', which is not among the 2 .*'a', 'b'"),
        (lambda: partition.feature_bins(["a", None]), "missing value in row 1"),
        (lambda: partition.feature_bins(["a", np.nan]), "missing value in row 1"),
        (lambda: partition.feature_bins([np.nan, 1.0]), "missing value in row 0"),
        (lambda: partition.feature_bins([1, "a"]), "mix int and str"),
        (lambda: partition.feature_bins([1.0, 2.0], edges=[3, 3]), "`edges` must be strictly increasing"),
        (lambda: partition.feature_bins(["a"], edges=[3]), "`edges` need numbers"),
        (lambda: partition.natural(["a", "b"], names=["a"]), "`silo` has 'b'"),
        (lambda: partition.natural(["a"], names=["a", "a"]), "`names` must be distinct"),
        (lambda: partition.natural([]), "`silo`"),
        (lambda: partition.summary(partition.iid(4, 2, 0), [0, 1]), "one entry per row, 4, got 2"),
    ],
)
def test_errors_name_the_argument_and_the_value(make, message):
    with pytest.raises(ValueError, match=message):
        make()
