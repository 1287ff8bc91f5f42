"""Preprocessing: a raw table put through what was fitted gives what `split` gave, to the bit."""

import json
import warnings

import chex
import numpy as np
import pandas as pd
import pytest

from fedjax_fraud.data import (
    describe_split,
    load_paysim,
    load_table,
    paysim,
    preprocessing,
    read_frame,
    split,
    write_paysim_csv,
)
from fedjax_fraud.types import Transactions

NUM_ROWS = 400


def messy(seed=0):
    """A table with everything in it: gaps, text, dates, heavy tails, truth values, a constant."""
    rng = np.random.default_rng(seed)
    number = np.arange(NUM_ROWS)
    return pd.DataFrame(
        {
            "fraud": np.where(rng.random(NUM_ROWS) < 0.2, "Yes", "No"),
            "when": pd.date_range("2026-01-01", periods=NUM_ROWS, freq="2h"),
            "amount": rng.lognormal(5, 2.5, NUM_ROWS).round(2),
            "age": np.where(number % 7 == 0, np.nan, rng.normal(40, 9, NUM_ROWS)),
            "visits": rng.poisson(2, NUM_ROWS),
            "abroad": rng.random(NUM_ROWS) < 0.3,
            "kind": np.where(number % 11 == 0, None, rng.choice(["shop", "web", "atm"], NUM_ROWS)),
            "opened": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 2000, NUM_ROWS), "D"),
            "currency": "EUR",
        }
    )


def load(frame, **options):
    return load_table(frame, "fraud", time="when", amount="amount", positive="Yes", **options)


def halves(frame, by):
    """The rows of a frame on the two sides of its split, found again by their money and time."""
    table = load(frame)
    train, test = split(table, by, seed=3)
    in_test = np.isin(table.amount + 1e6 * table.time, test.amount + 1e6 * test.time)
    return train, test, frame[~in_test], frame[in_test]


@pytest.mark.parametrize("by", ["time", "random"])
def test_the_raw_rows_of_each_side_give_its_features_to_the_bit(by):
    train, test, train_rows, test_rows = halves(messy(), by)
    again = preprocessing.from_record(json.loads(json.dumps(train.preprocessing.record(), allow_nan=False)))
    assert again == train.preprocessing == test.preprocessing
    for made in (train.preprocessing, again):
        assert made.names == train.names == test.names
        chex.assert_trees_all_equal(made.features(train_rows), train.features, strict=True)
        chex.assert_trees_all_equal(made.features(test_rows[::-1])[::-1], test.features, strict=True)
        chex.assert_trees_all_equal(made.features(test_rows[:1]), test.features[:1], strict=True)
        assert made.features(test_rows[:0]).shape == (0, len(test.names))


@pytest.mark.parametrize("positive", ["Yes", ["Yes", "Maybe"]])
def test_labels_of_a_new_table_are_read_as_those_of_the_training_table(positive):
    frame = messy()
    if "Maybe" in positive:
        frame.loc[5, "fraud"] = "Maybe"
    table = load_table(frame, "fraud", time="when", positive=positive)
    train, _ = split(table)
    chex.assert_trees_all_equal(train.preprocessing.labels(frame), table.labels, strict=True)
    assert train.preprocessing.labels(frame.drop(columns="fraud")) is None
    assert train.encoding.positive == (("Yes", "Maybe") if "Maybe" in positive else ("Yes",))
    with pytest.raises(ValueError, match="`fraud` must have a value in every row, got no value in row 3"):
        train.preprocessing.labels(frame.assign(fraud=frame.fraud.where(frame.index != 2)))


def test_a_file_gives_the_same_bits_as_memory(tmp_path):
    train, _, train_rows, _ = halves(messy(), "time")
    train_rows.to_csv(tmp_path / "rows.csv.gz", index=False)
    train_rows.to_parquet(tmp_path / "rows.parquet")
    for name in ("rows.csv.gz", "rows.parquet"):
        raw = read_frame(tmp_path / name).drop(columns=["fraud", "currency"])
        chex.assert_trees_all_equal(train.preprocessing.features(raw), train.features, strict=True)


@pytest.mark.parametrize("features", ["known_before", "all"])
def test_paysim_rows_give_their_features_to_the_bit(tmp_path, features):
    path = tmp_path / "rows.csv"
    write_paysim_csv(path, 3000, seed=1, fraud_rate=0.05)
    table = load_paysim(path, features)
    train, test = split(table)
    raw = read_frame(path)
    for side, rows in ((train, raw.step <= train.time.max()), (test, raw.step >= test.time.min())):
        needed = raw[rows].drop(columns=["isFraud", "nameOrig", "nameDest", "isFlaggedFraud"])
        made = preprocessing.from_record(json.loads(json.dumps(side.preprocessing.record(), allow_nan=False)))
        chex.assert_trees_all_equal(made.labels(raw[rows]), side.labels, strict=True)
        chex.assert_trees_all_equal(made.features(needed), side.features, strict=True)
    with pytest.raises(ValueError, match="`frame` lacks the column `amount`"):
        train.preprocessing.features(raw.drop(columns="amount"))


def test_columns_made_by_hand_give_their_features_to_the_bit():
    values = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    values[::9, 1] = np.nan
    table = Transactions(values, (np.arange(100) % 3 == 0).astype(np.int32), ("a", "b"), time=np.arange(100))
    train, test = split(table)
    assert train.names == ("a", "b", "b is missing")
    frame = pd.DataFrame(values, columns=["a", "b"])
    chex.assert_trees_all_equal(train.preprocessing.features(frame[:80]), train.features, strict=True)
    chex.assert_trees_all_equal(train.preprocessing.features(frame[80:]), test.features, strict=True)
    with pytest.raises(ValueError, match="`a` has a gap in row 5 of the table"):
        train.preprocessing.features(frame.assign(a=frame.a.where(frame.index != 4)))


def test_a_gap_becomes_the_training_median_and_an_input_of_its_own():
    train, test, train_rows, test_rows = halves(messy(), "time")
    feature = next(one for one in train.preprocessing.fitted if one.name == "age")
    assert feature.fill == np.median(train_rows.age.dropna().astype(np.float32))
    gaps = test_rows.age.isna().to_numpy()
    missing = test.features[:, test.names.index("age is missing")]
    assert np.unique(missing[gaps]).size == np.unique(missing[~gaps]).size == 1 and missing[gaps][0] > missing[~gaps][0]
    middle = np.float32((feature.fill - feature.center) / feature.scale)
    assert set(test.features[gaps, test.names.index("age")]) == {middle}
    filled = describe_split(train, test)["filled"]
    assert filled["age"] == dict(train=int(train_rows.age.isna().sum()), test=int(gaps.sum()), fill=feature.fill)
    assert filled["kind"]["fill"] is None and filled["kind"]["test"] == int(test_rows.kind.isna().sum())


def test_nothing_of_the_test_rows_is_in_the_training_features():
    """B30: other test values, gaps, categories and tails change no bit of train."""
    frame = messy()
    train, _ = split(load(frame))
    other = frame.copy()
    last = other.index >= 320
    other.loc[last, "age"] = np.nan
    other.loc[last, "amount"] = 1e30
    other.loc[last, "visits"] = 10**9
    other["kind"] = other.kind.astype(object)
    other.loc[last, "kind"] = "balloon"
    changed, test = split(load(other))
    assert changed.names == train.names
    chex.assert_trees_all_equal(changed.features, train.features, strict=True)
    indicators = [name for name in test.names if name.startswith("kind")]
    assert indicators == ["kind=atm", "kind=shop", "kind=web", "kind is missing"]
    assert describe_split(changed, test)["unseen_categories"] == {"kind": 80}
    assert changed.preprocessing.unseen(other) == {"kind": 80}
    assert changed.preprocessing.unseen(frame) == {}


def test_a_column_with_one_value_in_the_training_rows_is_left_out_and_said_so():
    frame = messy()
    frame["late"] = (frame.index >= 330) * 1.0
    train, test = split(load(frame))
    assert "late" not in train.names
    late = next(one for one in describe_split(train, test)["columns"] if one["name"] == "late")
    assert (late["kind"], late["note"]) == ("constant", "one value in the training rows")


def test_gaps_that_training_did_not_have_are_counted():
    frame = messy()
    train, *_ = halves(frame, "time")
    rows = frame.assign(visits=frame.visits.where(frame.index % 4 > 0), opened=frame.opened.where(frame.index != 7))
    assert train.preprocessing.new_gaps(frame) == {}  # age and kind have gaps, and had them in training
    assert train.preprocessing.new_gaps(rows) == {"visits": 100, "opened": 1}
    rows = frame.assign(fraud=frame.fraud, kind=frame.kind.fillna("web"))
    train, _ = split(load(rows))
    assert train.preprocessing.new_gaps(frame) == {"kind": int(frame.kind.isna().sum())}
    assert train.preprocessing.unseen(frame) == {}


def test_codes_of_a_new_file_meet_those_of_the_training_file(tmp_path):
    """Also where no code of the new file begins with a zero, or one does in a column of numbers."""
    rows = pd.DataFrame({"code": ["01067", "80331"] * 50, "x": np.arange(100) % 7, "y": np.arange(100) % 3 == 0})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    train, test = split(load_table(tmp_path / "rows.csv", "y"), by="random")
    both = np.concatenate([train.features, test.features])
    made = train.preprocessing.features(read_frame(tmp_path / "rows.csv"))
    chex.assert_trees_all_equal(np.unique(made, axis=0), np.unique(both, axis=0))
    (tmp_path / "new.csv").write_text("code,x\n80331,05\n80331,6\n")
    new = read_frame(tmp_path / "new.csv")
    chex.assert_trees_all_equal(train.preprocessing.features(new), made[[5, 13]])
    assert train.preprocessing.unseen(new) == {}


@pytest.mark.parametrize(
    "column, value", [("visits", "many"), ("amount", 1e300), ("fraud", None), ("fraud", "Perhaps")]
)
def test_what_is_wrong_with_a_new_table_is_told_without_advice_on_training(column, value):
    train, *_, rows = halves(messy(), "time")
    rows = rows.assign(**{column: rows[column].astype(object).where(rows.index != rows.index[3], value)})
    if value == "Perhaps":
        train = train._replace(
            preprocessing=train.preprocessing._replace(encoding=train.encoding._replace(positive=None))
        )
    with pytest.raises(ValueError, match=f"`{column}`.* in row") as caught:
        train.preprocessing.labels(rows)
        train.preprocessing.features(rows)
    assert not [word for word in ("`drop`", "`positive`", "`missing`") if word in str(caught.value)]


def test_paysim_rows_in_other_types_are_numbers_or_refused():
    rows = pd.DataFrame({"step": ["07", "8"], "type": ["TRANSFER"] * 2, "amount": ["1.5", "2"]})
    assert paysim.frame_features(rows, "known_before").shape[0] == 2
    with pytest.raises(ValueError, match="`amount` must hold numbers, got 'much' in row 2"):
        paysim.frame_features(rows.assign(amount=["1", "much"]), "known_before")
    with pytest.raises(ValueError, match="`type` must be one of"):
        paysim.frame_features(rows.assign(type=[1, 2]), "known_before")


def test_listed_categories_stay_whatever_the_training_rows_hold():
    train, _ = split(load(messy(), categories={"kind": ["shop", "web", "atm", "balloon"]}))
    assert "kind=balloon" in train.names
    column = train.features[:, train.names.index("kind=balloon")]
    chex.assert_trees_all_equal(column, np.zeros_like(column))


def test_heavy_tails_get_a_logarithm_and_the_rest_does_not():
    train, _ = split(load(messy()))
    forms = {one.name: one.form for one in train.preprocessing.fitted}
    assert (forms["amount"], forms["visits"], forms["age"]) == ("signed log", "value", "value")
    assert next(one for one in train.encoding.columns if one.name == "amount").kind == "signed log"


@pytest.mark.parametrize(
    "draw, heavy",
    [
        (lambda rng, n: rng.normal(size=n), False),
        (lambda rng, n: rng.uniform(size=n), False),
        (lambda rng, n: rng.exponential(100, n), False),
        (lambda rng, n: rng.random(n) < 0.001, False),
        (lambda rng, n: rng.lognormal(5, 2, n), True),
        (lambda rng, n: rng.lognormal(5, 2, n) * rng.choice([-1, 1], n), True),
        (lambda rng, n: 1e30 * rng.lognormal(5, 2, n), True),
        (lambda rng, n: np.zeros(n), False),
    ],
)
def test_what_counts_as_heavy_tails(draw, heavy):
    values = draw(np.random.default_rng(0), 20_000).astype(np.float64)
    assert preprocessing.has_heavy_tails(values) == heavy


def test_a_new_table_without_gaps_in_training_is_filled_where_the_median_is_known():
    """Scoring must not fail for a gap in a column of a table that had none."""
    train, *_, test_rows = halves(messy(), "time")
    test_rows = test_rows.assign(visits=np.nan)
    features = train.preprocessing.features(test_rows)
    chex.assert_tree_all_finite(features)


@pytest.mark.parametrize("name", ["amount", "when", "kind", "opened"])
def test_a_table_without_a_column_that_is_needed_is_refused(name):
    train, *_, rows = halves(messy(), "time")
    with pytest.raises(ValueError, match=f"`frame` lacks the column `{name}`"):
        train.preprocessing.features(rows.drop(columns=name))


def test_a_table_without_anything_that_varies_is_refused():
    frame = pd.DataFrame({"y": [0, 1] * 50, "x": [0.0] * 80 + [1.0] * 20, "t": np.arange(100)})
    with pytest.raises(ValueError, match="no feature that varies in the training rows"):
        split(load_table(frame, "y", time="t"))


def test_the_times_of_the_sides_are_dates_where_the_table_has_dates():
    described = describe_split(*split(load(messy())))
    assert described["train"]["time_range"] == ["2026-01-01T00:00:00", "2026-01-27T14:00:00"]
    assert described["test"]["time_range"] == ["2026-01-27T16:00:00", "2026-02-03T06:00:00"]


def test_a_leak_is_named_when_the_table_is_split():
    frame = messy().assign(chargeback=lambda rows: (rows.fraud == "Yes") * 12.5)
    with pytest.warns(UserWarning, match=r"chargeback = 12\.5 \(recall 1\.000, precision 1\.000\).*`drop`"):
        train, test = split(load(frame))
    (leak,) = describe_split(train, test)["suspected_leaks"]
    assert leak == dict(column="chargeback", rule="chargeback = 12.5", recall=1.0, precision=1.0, is_feature=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        split(load(frame, drop=["chargeback"]))
