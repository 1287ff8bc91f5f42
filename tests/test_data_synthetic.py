"""`paysim_like` against the figures of the published file, and its CSV against itself."""

import gzip
import json

import chex
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

from fedjax_fraud.data import calibration, load_paysim, paysim_like, split, write_paysim_csv
from fedjax_fraud.data.paysim import TYPES
from fedjax_fraud.data.synthetic import raw_paysim

NUM_ROWS = 300_000
LEAVING = ("TRANSFER", "CASH_OUT")
SHARE_OF_TYPE = {"CASH_OUT": 0.35166, "PAYMENT": 0.33815, "CASH_IN": 0.21992, "TRANSFER": 0.08376, "DEBIT": 0.00651}


@pytest.fixture(scope="module")
def raw():
    return raw_paysim(NUM_ROWS, 7, 0.00129).to_pandas()


@pytest.fixture(scope="module")
def many_frauds():
    """Enough fraud rows for their own figures."""
    rows = raw_paysim(40_000, 8, 0.5).to_pandas()
    return rows[rows.isFraud == 1]


def assert_share(indicator, share, *, more=0.0):
    """The share of true rows lies within five standard errors (plus ``more``) of ``share``."""
    indicator = np.asarray(indicator)
    error = np.sqrt(share * (1 - share) / indicator.size)
    assert abs(indicator.mean() - share) <= 5 * error + 1e-12 + more, (indicator.mean(), share)


@pytest.mark.parametrize("kind", TYPES)
def test_each_type_has_its_share_of_the_rows(raw, kind):
    assert_share(raw["type"] == kind, SHARE_OF_TYPE[kind])


@pytest.mark.parametrize("kind", TYPES)
def test_genuine_amounts_have_the_published_quantiles(raw, kind):
    amount = raw.amount[(raw["type"] == kind) & (raw.isFraud == 0)].to_numpy()
    for level, value in zip(calibration.LEVELS, calibration.GENUINE[kind].amount.quantiles, strict=True):
        if level > 0 and value != 10_000_000:
            assert_share(amount <= value, level)
    if kind == "TRANSFER":
        assert_share(amount == 10_000_000, 0.00651)
        assert_share(amount > 10_000_000, 0.00439)


def test_fraud_amounts_have_the_published_quantiles_and_cap(many_frauds):
    """Both fraud types together; their separate published quantiles differ by up to 0.01 in level."""
    amount = many_frauds.amount.to_numpy()
    for level, value in ((0.05, 17500), (0.25, 127091), (0.5, 441423), (0.75, 1517771), (0.95, 7970000)):
        assert_share(amount <= value, level, more=0.01)
    assert amount.max() == 10_000_000
    assert_share(amount == 10_000_000, 287 / 8213)


def test_there_are_as_many_frauds_as_asked_for_all_in_transfer_and_cash_out(raw):
    fraud = raw[raw.isFraud == 1]
    assert len(fraud) == round(NUM_ROWS * 0.00129)
    counts = fraud["type"].value_counts()
    assert set(counts.index) == set(LEAVING)
    assert abs(counts["TRANSFER"] - counts["CASH_OUT"]) <= 1


def test_fraud_comes_in_pairs_of_one_step_and_amount(many_frauds):
    """Published: 99.5 % of the transfers have a partner; amounts of 0 have none."""
    keys = {
        kind: set(map(tuple, many_frauds[many_frauds["type"] == kind][["step", "amount"]].values)) for kind in LEAVING
    }
    paired = np.array([key in keys["CASH_OUT"] for key in keys["TRANSFER"]])
    assert_share(paired, 0.99536, more=0.002)


def test_genuine_rows_follow_the_hours_and_days_of_the_file(raw):
    step = raw.step[raw.isFraud == 0].to_numpy()
    assert step.min() >= 1
    for hour, share in enumerate(calibration.SHARE_BY_HOUR):
        assert_share(step % 24 == hour, share)
    for day, share in enumerate(calibration.SHARE_BY_DAY):
        assert_share((step - 1) // 24 == day, share)


def test_fraud_is_even_over_hours_and_lasts_to_the_last_step(many_frauds):
    step = many_frauds[many_frauds["type"] == "TRANSFER"].step.to_numpy()
    assert (step.min(), step.max()) == (1, 743)
    for hour in range(24):
        assert_share(step % 24 == hour, 31 / 743)


EMPTY_ORIGIN = {"CASH_IN": 0.00926, "CASH_OUT": 0.45965, "DEBIT": 0.16697, "PAYMENT": 0.35693, "TRANSFER": 0.54509}
EMPTY_RECEIVER = {"CASH_IN": 0.11517, "CASH_OUT": 0.14247, "DEBIT": 0.0, "PAYMENT": 1.0, "TRANSFER": 0.10987}
EMPTIED_ORIGIN = {"CASH_IN": 0.0, "CASH_OUT": 0.8895, "DEBIT": 0.30672, "PAYMENT": 0.50962, "TRANSFER": 0.96347}


@pytest.mark.parametrize("kind", TYPES)
def test_genuine_balances_are_zero_as_often_as_in_the_file(raw, kind):
    """A balance after depends on two columns that are drawn independently here: 0.06 of tolerance more."""
    rows = raw[(raw["type"] == kind) & (raw.isFraud == 0)]
    assert_share(rows.oldbalanceOrg == 0, EMPTY_ORIGIN[kind], more=1e-4)
    assert_share(rows.oldbalanceDest == 0, EMPTY_RECEIVER[kind], more=1e-4)
    assert_share(rows.newbalanceOrig == 0, EMPTIED_ORIGIN[kind], more=0.06)


def test_the_balance_equations_of_genuine_rows_hold_to_the_cent(raw):
    rows = raw[raw.isFraud == 0]
    sign = np.where(rows["type"] == "CASH_IN", 1, -1)
    expected = np.maximum(0, rows.oldbalanceOrg + sign * rows.amount)
    chex.assert_trees_all_close(rows.newbalanceOrig.to_numpy(), np.asarray(expected), atol=0.005, rtol=0)
    merchants = rows[rows["type"] == "PAYMENT"]
    assert (merchants[["oldbalanceDest", "newbalanceDest"]] == 0).all(axis=None)
    into = rows[rows["type"].isin(LEAVING)]
    on_time = (into.oldbalanceDest + into.amount - into.newbalanceDest).abs() < 0.005
    assert_share(on_time, 0.90, more=0.02)


def test_the_rule_catches_nearly_all_fraud_and_nothing_genuine(many_frauds):
    """B28: the published rule recall is 0.975, without a false alarm."""
    loaded = paysim_like(NUM_ROWS, seed=9)
    assert not loaded.rule_alarm[loaded.labels == 0].any()
    emptied = (many_frauds.amount == many_frauds.oldbalanceOrg) & (many_frauds.newbalanceOrig == 0)
    assert_share(emptied & (many_frauds.amount > 0), 0.975, more=0.005)
    flagged = many_frauds[many_frauds.isFlaggedFraud == 1]
    assert (flagged["type"] == "TRANSFER").all()
    assert (flagged.oldbalanceOrg == flagged.newbalanceOrig).all()


def test_receivers_repeat_and_origins_hardly_do(raw):
    assert 2.2 < NUM_ROWS / raw.nameDest.nunique() < 2.5
    assert raw.nameOrig.nunique() > 0.998 * NUM_ROWS
    assert (raw.nameDest.str.startswith("M") == (raw["type"] == "PAYMENT")).all()
    assert raw.nameOrig.str.startswith("C").all()


@pytest.mark.parametrize("num_rows", [100_000, 300_000])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_logistic_regression_finds_some_of_the_fraud_but_not_all(num_rows, seed):
    train, test = split(paysim_like(num_rows, seed))
    model = LogisticRegression(max_iter=500).fit(train.features, train.labels)
    score = average_precision_score(test.labels, model.decision_function(test.features))
    assert 0.1 < score < 0.4


def test_the_same_seed_gives_the_same_bits_and_leaves_global_state_alone():
    np.random.seed(3)
    before = np.random.get_state()[1].copy()
    first, again, other = paysim_like(5000, 1), paysim_like(5000, 1), paysim_like(5000, 2)
    chex.assert_trees_all_equal(first, again)
    assert not np.array_equal(first.features, other.features)
    chex.assert_trees_all_equal(np.random.get_state()[1], before)


@pytest.mark.parametrize("features", ["known_before", "all"])
@pytest.mark.parametrize("name", ["made.csv", "made.csv.gz"])
def test_writing_and_loading_gives_the_transactions_made_directly(tmp_path, name, features):
    write_paysim_csv(tmp_path / name, 20_000, 5, 0.01)
    loaded = load_paysim(tmp_path / name, features)
    direct = paysim_like(20_000, 5, fraud_rate=0.01, features=features)
    chex.assert_trees_all_equal(loaded._replace(source=""), direct._replace(source=""))
    assert loaded.features.dtype == direct.features.dtype
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_csv_has_kaggles_header_two_decimals_and_the_same_bytes_each_time(tmp_path):
    for name in ("a.csv.gz", "b.csv.gz", "c.csv"):
        write_paysim_csv(tmp_path / name, 500, 1)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    plain = (tmp_path / "c.csv").read_bytes()
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()) == plain
    header, first, *_ = plain.decode().split("\n")
    assert header == (
        "step,type,amount,nameOrig,oldbalanceOrg,newbalanceOrig,nameDest,oldbalanceDest,newbalanceDest,"
        "isFraud,isFlaggedFraud"
    )
    money = [first.split(",")[column] for column in (2, 4, 5, 7, 8)]
    assert all(text[-3] == "." for text in money)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "kept.csv"
    path.write_text("old")

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr("fedjax_fraud.data.synthetic._write_table", fail)
    with pytest.raises(OSError, match="disk full"):
        write_paysim_csv(path, 500)
    assert [found.name for found in tmp_path.iterdir()] == ["kept.csv"]
    assert path.read_text() == "old"


def test_the_smallest_table_still_has_a_fraud():
    assert paysim_like(100).labels.sum() == 2
    assert paysim_like(101, fraud_rate=0.03).labels.sum() == 3


BAD_ARGUMENTS = {
    "few rows": (dict(num_rows=99), r"`num_rows` must be at least 100, got 99"),
    "negative seed": (dict(seed=-1), r"`seed` must be 0 or more, got -1"),
    "no fraud": (dict(fraud_rate=0.0), r"`fraud_rate` must be in \(0, 0.5\], got 0.0"),
    "percentage": (dict(fraud_rate=13.0), r"`fraud_rate` must be in \(0, 0.5\], got 13.0.*percentage"),
    "NaN": (dict(fraud_rate=float("nan")), r"`fraud_rate` must be in"),
    "features": (dict(num_rows=100, features="some"), r"`features` must be one of"),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_an_argument_out_of_range_is_named(case):
    arguments, message = BAD_ARGUMENTS[case]
    with pytest.raises(ValueError, match=message):
        paysim_like(**arguments)


def test_writing_into_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"`path` is in a folder that does not exist"):
        write_paysim_csv(tmp_path / "none" / "a.csv", 500)


@pytest.mark.shared
def test_the_constants_are_those_of_the_facts_file(shared_data):
    facts = json.loads((shared_data / "paysim_facts.json").read_text())
    population, genuine, fraud = facts["population"], facts["legit_estimates"], facts["fraud"]
    assert genuine["share_by_step_mod_24"] == list(calibration.SHARE_BY_HOUR)
    assert genuine["share_by_day"] == list(calibration.SHARE_BY_DAY)
    assert population["step_max"] == calibration.LAST_STEP
    assert population["share_by_type"] == SHARE_OF_TYPE
    for name, behaviour in calibration.GENUINE.items():
        found = genuine["by_type"][name]
        assert behaviour.num_rows == population["rows_by_type"][name] - population["fraud_by_type"][name]
        for curve, key in ((0, "amount"), (1, "oldbalanceOrg"), (2, "oldbalanceDest")):
            assert list(behaviour[1 + curve].quantiles[1:]) == list(found[f"{key}_quantiles"].values())
        assert found["share_oldbalanceOrg_zero"] == EMPTY_ORIGIN[name]
        assert found["share_oldbalanceDest_zero"] == EMPTY_RECEIVER[name]
        assert found["share_newbalanceOrig_zero"] == EMPTIED_ORIGIN[name]
        stops = [flat.stop for flat in behaviour.origin_balance.flats + behaviour.receiver_balance.flats]
        assert set(stops) <= {EMPTY_ORIGIN[name], EMPTY_RECEIVER[name]}
    victims, cashed = fraud["by_type"]["TRANSFER"], fraud["by_type"]["CASH_OUT"]
    assert list(calibration.VICTIM_BALANCE.quantiles[1:]) == list(victims["oldbalanceOrg_quantiles"].values())
    received = calibration.CASHED_RECEIVER_BALANCE
    assert list(received.quantiles[1:]) == list(cashed["oldbalanceDest_quantiles"].values())
    assert received.flats[0].stop == cashed["share_oldbalanceDest_zero"]
    assert victims["share_dest_both_zero"] == calibration.MULE_UNTOUCHED
    assert cashed["share_amount_zero"] == calibration.CASHED_NOTHING
    assert fraud["max_amount"] == calibration.FRAUD_CAP
