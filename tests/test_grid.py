"""The grid of a sweep: who owns which rows under each kind of partition, what is crossed, what is refused."""

import math

import chex
import numpy as np
import pytest

from fedjax_fraud import checks, grid, partition
from fedjax_fraud.checks import check_partition
from fedjax_fraud.data import split
from fedjax_fraud.types import Transactions

KINDS = [
    ("labels", "amount"),
    ("quantity", "amount"),
    ("iid", "amount"),
    ("natural", "amount"),
    ("feature", "amount"),
    ("feature", "hour"),
    ("feature", "type"),
    ("feature", "colour"),
    ("feature", "size"),
]


def make_tables(num_rows=300):
    rng = np.random.default_rng(8)
    kind, colour = rng.integers(0, 3, num_rows), rng.integers(0, 2, num_rows)
    size = rng.normal(size=num_rows)
    columns = [kind == 0, kind == 1, kind == 2, colour == 0, colour == 1, size]
    table = Transactions(
        np.stack(columns, axis=1).astype(np.float32),
        (rng.random(num_rows) < 0.1).astype(np.int32),
        ("type_A", "type_B", "type_C", "colour=red", "colour=blue", "size"),
        amount=rng.lognormal(size=num_rows),
        time=rng.integers(1, 700, num_rows),
        silo=rng.choice(["a", "b", "c"], num_rows),
    )
    return (*split(table, by="random"), kind)


TRAIN, TEST, _ = make_tables()


def make(train=TRAIN, test=TEST, **changes):
    options = dict(
        algorithms=["fedavg", "fedprox", "scaffold"],
        alphas=[0.1, 1.0],
        seeds=[0, 7],
        num_clients=3,
        client_lrs=[0.1, 0.2, 0.3],
        mus=[0.01, 0.1],
        num_epochs=[1, 2],
        partition_kind="labels",
        partition_feature="amount",
        baselines=True,
    )
    return grid.make_grid(train, test, **(options | changes))


@pytest.mark.parametrize("kind, feature", KINDS)
def test_every_row_has_one_owner_in_train_and_in_test(kind, feature):
    made = make(partition_kind=kind, partition_feature=feature)
    assert len(made.owners) == (4 if kind in grid.SKEWED else 2)
    for owned in made.owners.values():
        for rows, table in zip(owned, (TRAIN, TEST), strict=True):
            assert rows.count.shape == (3,)
            check_partition(rows, len(table.labels))
            assert (np.bincount(partition.client_of(rows), minlength=3) == rows.count).all()


def test_one_hot_columns_stand_for_the_category_that_they_encode():
    """Standardised too: the column that is on is the only positive one."""
    _, _, kind = make_tables()
    raw = Transactions(np.eye(3, dtype=np.float32)[kind], np.arange(len(kind)) % 2, ("type_A", "type_B", "type_C"))
    train, test = split(raw, by="random")
    made = make(train, test, partition_kind="feature", partition_feature="type")
    np.testing.assert_array_equal(grid.feature_values(raw, "type"), np.array(raw.names)[kind])
    for (alpha, seed), owned in made.owners.items():
        known = train.features.argmax(axis=1)
        chex.assert_trees_all_equal(owned.train, partition.dirichlet_feature(known, 3, alpha, seed))


def test_feature_values_are_found_by_role_name_or_prefix():
    np.testing.assert_array_equal(grid.feature_values(TRAIN, "amount"), TRAIN.amount)
    np.testing.assert_array_equal(grid.feature_values(TRAIN, "hour"), TRAIN.time % 24)
    np.testing.assert_array_equal(grid.feature_values(TRAIN, "size"), TRAIN.features[:, 5])
    colours = np.array(TRAIN.names[3:5])
    np.testing.assert_array_equal(grid.feature_values(TRAIN, "colour"), colours[(TRAIN.features[:, 4] > 0).astype(int)])


@pytest.mark.parametrize("feature", ["shade", "hour", "amount", "siz"])
def test_a_feature_that_is_not_there_is_refused_with_those_that_are(feature):
    bare = TRAIN._replace(amount=None, time=None)
    with pytest.raises(ValueError) as caught:
        grid.feature_values(bare, feature)
    assert repr(feature) in str(caught.value) and "colour=red" in str(caught.value)


def test_natural_banks_are_those_of_the_training_table():
    """A bank without test rows still has its number; one that only the test table knows is refused."""
    here = np.flatnonzero(TEST.silo != "b")
    few = Transactions(TEST.features[here], TEST.labels[here], TEST.names, silo=TEST.silo[here])
    made = make(test=few, partition_kind="natural", num_clients=8)
    for owned in made.owners.values():
        assert owned.train.count.tolist() == [np.sum(TRAIN.silo == name) for name in "abc"]
        assert owned.test.count.tolist() == [np.sum(few.silo == name) for name in "abc"]
        assert owned.test.count[1] == 0
    with pytest.raises(ValueError, match="'z'"):
        make(test=TEST._replace(silo=np.full(len(TEST.labels), "z")), partition_kind="natural")


def test_a_natural_partition_needs_a_silo_column():
    with pytest.raises(ValueError, match=r"needs a silo column.*silo="):
        make(train=TRAIN._replace(silo=None), partition_kind="natural")


def test_only_a_hyperparameter_s_own_algorithms_are_crossed_with_it():
    made = make()
    pairs, rates = 2 * 2, 3 * 2
    names = [federation.algorithm for federation in made.federations]
    assert {name: names.count(name) for name in names} == {
        "fedavg": pairs * rates,
        "fedprox": 2 * pairs * rates,
        "scaffold": pairs * rates,
    }
    assert len(set(made.federations)) == len(names)
    assert all(math.isnan(f.mu) == (f.algorithm != "fedprox") for f in made.federations)
    assert all(f.bank == -1 for f in made.federations + made.centralised)


def test_baselines_are_one_model_a_seed_and_one_for_each_bank():
    made = make()
    assert len(made.centralised) == 2 * 3 * 2
    assert all(math.isnan(f.alpha) for f in made.centralised)
    assert len(made.local_only) == 4 * 3 * 2 * 3
    banks = [f.bank for f in made.local_only]
    assert banks == [0, 1, 2] * (len(banks) // 3)  # the banks of one federation stand together
    groups = [made.local_only[i : i + 3] for i in range(0, len(banks), 3)]
    assert all(len({f._replace(bank=0, mu=0.0) for f in group}) == 1 for group in groups)
    without = make(baselines=False)
    assert (without.centralised, without.local_only) == ([], [])
    assert len(without.federations) == len(made.federations)


def test_train_and_test_rows_are_spread_in_the_same_proportions():
    made = make(alphas=[0.3])
    for owned in made.owners.values():
        for label in (0, 1):
            share = [
                np.bincount(partition.client_of(rows)[table.labels == label], minlength=3)
                / (table.labels == label).sum()
                for rows, table in zip(owned, (TRAIN, TEST), strict=True)
            ]
            # Rounding moves less than one row of a client on either side.
            assert (
                np.abs(share[0] - share[1]).max()
                < 1 / (TEST.labels == label).sum() + 1e-9 + 1 / (TRAIN.labels == label).sum()
            )


def positives_of(rows, table):
    return np.bincount(partition.client_of(rows), table.labels, len(rows.count)).astype(int)


def test_a_minimum_holds_for_training_rows_and_in_proportion_for_test_rows():
    made = make(alphas=[0.01, 0.1], seeds=range(10), banks=grid.Banks(min_positives=4))
    num_train, num_test = TRAIN.labels.sum(), TEST.labels.sum()
    least = min(max(1, 4 * num_test // num_train), num_test // 3)
    assert least >= 1
    for owned in made.owners.values():
        assert positives_of(owned.train, TRAIN).min() >= 4
        assert positives_of(owned.test, TEST).min() >= least


def test_controlled_banks_are_alike_in_train_and_test_for_every_seed():
    banks = grid.Banks(sizes=[0.6, 0.3, 0.1], prevalences=[0.004, 0.001, 0.0005])
    made = make(partition_kind="controlled", num_clients=9, banks=banks)
    assert [seed for _, seed in made.owners] == [0, 7] and all(math.isnan(alpha) for alpha, _ in made.owners)
    for owned in made.owners.values():
        for rows, table in zip(owned, (TRAIN, TEST), strict=True):
            check_partition(rows, len(table.labels))
            assert np.abs(rows.count - len(table.labels) * np.array(banks.sizes)).max() < 1
            wanted = np.array([24, 3, 0.5]) / 27.5 * table.labels.sum()
            assert np.abs(positives_of(rows, table) - wanted).max() < 1.5


@pytest.mark.parametrize(
    "kind, banks, message",
    [
        ("labels", grid.Banks(min_positives=-1), "`min_positives` must be an integer"),
        ("quantity", grid.Banks(min_positives=2), "`min_positives` is for partition 'labels', got 'quantity'"),
        ("labels", grid.Banks(sizes=[1.0]), "`bank_sizes` is for partition 'controlled', got 'labels'"),
        ("controlled", grid.Banks(), "needs `bank_sizes` and `bank_prevalences`"),
        ("controlled", grid.Banks(sizes=[1.0]), "needs `bank_prevalences`"),
        ("controlled", grid.Banks(sizes=[0.5, 0.6], prevalences=[1, 1]), "sum 1, got a sum of 1.1"),
    ],
)
def test_requests_that_no_table_could_meet_are_refused_before_any_is_read(kind, banks, message):
    with pytest.raises(ValueError, match=message):
        grid.check_banks(kind, banks)


@pytest.mark.parametrize(
    "check, words",
    [
        (
            lambda: checks.check_choice("kind", ["skew"], ["iid", "labels"]),
            ["`kind`", "'skew'", "iid, labels", "Choose"],
        ),
        (lambda: checks.check_choice("kind", [], ["iid"]), ["`kind`", "none", "Add"]),
        (lambda: checks.check_choice("kind", ["iid", "iid"], ["iid"]), ["`kind`", "'iid'", "Remove"]),
        (lambda: checks.check_distinct("seeds", [3, 4, 3]), ["`seeds`", "[3, 4, 3]", "Remove"]),
        (lambda: checks.check_distinct("seeds", []), ["`seeds`", "none", "Add"]),
        *(
            (lambda value=value: checks.check_numbers("rate", [value]), ["`rate`", repr(value), "above 0", "Pass"])
            for value in (0, 0.0, -1, math.nan, math.inf, -math.inf, True, "abc", None, 1j)
        ),
        (lambda: checks.check_numbers("mu", [-0.5], positive=False), ["`mu`", "-0.5", "at least 0", "Pass"]),
        (lambda: checks.check_numbers("mu", []), ["`mu`", "none", "Add"]),
        (lambda: checks.check_numbers("mu", [1.0, 1]), ["`mu`", "[1.0, 1]", "Remove"]),
    ],
)
def test_a_refusal_names_argument_value_and_remedy_in_one_line(check, words):
    with pytest.raises(ValueError) as caught:
        check()
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_good_numbers_pass():
    checks.check_numbers("rate", [1, 0.5, np.float32(0.1), np.int64(3)])
    checks.check_numbers("mu", [0, 0.5], positive=False)
    checks.check_choice("kind", ["b", "a"], ["a", "b", "c"])


def test_a_scalar_is_a_list_of_one():
    assert grid.as_list(0.1) == [0.1]
    assert grid.as_list("fedavg") == ["fedavg"]
    assert grid.as_list((1, 2)) == [1, 2]
    assert grid.as_list(np.array([1.5, 2.5])) == [1.5, 2.5]
