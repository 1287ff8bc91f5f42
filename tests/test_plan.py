"""A plan counts what a run then does; its estimates are finite, and it refuses what a run refuses."""

import math

import pandas as pd
import pytest

from fedjax_fraud import cache, plan
from fedjax_fraud.report import plan_lines
from tests.test_sweep import RATE, run_sweep

CONDITIONS = dict(
    participation=[0.5, 1.0],
    cohort="independent",
    stragglers=0.5,
    policy=["partial", "drop"],
    drop_before=0.2,
    drop_after=0.2,
)
CASES = {
    "ideal": dict(algorithms=["fedavg", "scaffold"], participation=1.0),
    "half of the banks": dict(algorithms=["fedavg", "ditto"]),
    "what goes wrong": dict(algorithms=["scaffold"], baselines=False, **CONDITIONS),
}


@pytest.fixture(scope="module", params=CASES)
def both(request):
    """A plan and the run of it."""
    options = dict(client_lr=RATE, mu=0.3, num_rounds=3, num_lanes=2, chunk_length=4) | CASES[request.param]
    return run_sweep(**options, dry_run=True), run_sweep(**options)


def test_steps_rows_and_traffic_are_those_of_the_run(both):
    planned, result = both
    work, rounds = result.manifest["work"], result.frame()
    assert planned.settings["rows"].sum() == work["rows_trained"]
    assert planned.num_federations == work["num_federations"] and planned.num_programs == work["num_programs"]
    federated = rounds[~rounds.algorithm.isin(["centralised", "local_only"])]
    keys = list(plan.CASE)
    found = federated.assign(bytes=federated.bytes_down + federated.bytes_up)
    found = found.groupby(keys).agg(
        num_settings=("setting", "nunique"), num_seeds=("seed", "nunique"), steps=("num_steps", "sum"),
        rows=("num_rows", "sum"), bytes=("bytes", "sum"),
    ).reset_index()  # fmt: skip
    wanted = planned.settings[~planned.settings.algorithm.isin(["centralised", "local_only"])]
    wanted = wanted.sort_values(keys).reset_index(drop=True)
    pd.testing.assert_frame_equal(wanted, found.sort_values(keys)[wanted.columns], check_dtype=False)


def test_the_banks_of_the_first_seed_are_shown(both):
    planned, result = both
    first = result.partitions[result.partitions.seed == 0].reset_index(drop=True)
    pd.testing.assert_frame_equal(planned.partitions, first)


def test_the_estimates_are_positive_numbers(both):
    guess = both[0].estimate
    assert all(math.isfinite(value) and value > 0 for value in guess)
    assert guess.kept_seconds < guess.compile_seconds


def test_the_words_hold_the_sums(both):
    planned = both[0]
    text = "\n".join(plan_lines(planned))
    assert f"{planned.settings['rows'].sum():,} rows trained" in text
    assert f"{planned.num_federations} federation" in text and "GiB" in text
    assert max(map(len, text.splitlines())) <= 160


def test_a_plan_refuses_what_a_run_refuses():
    with pytest.raises(ValueError, match="num_clients"):
        run_sweep(num_clients=900, dry_run=True)
    with pytest.raises(ValueError, match="bytes_per_second"):
        run_sweep(bytes_per_second=0.0, dry_run=True)


def test_a_plan_writes_nothing_and_keeps_no_program(tmp_path, monkeypatch):
    def fail():
        raise AssertionError("the cache was switched on")

    monkeypatch.setattr(cache, "use_compilation_cache", fail)
    monkeypatch.chdir(tmp_path)
    run_sweep(algorithms=["fedavg"], client_lr=RATE, baselines=False, dry_run=True, checkpoint=tmp_path / "kept")
    assert list(tmp_path.iterdir()) == []


def test_a_rate_is_the_slope_between_two_sizes():
    """A call costs 0.1 s, and each of 4 units a repeat 0.01 s."""
    assert plan._rate(lambda repeat: (0.1 + 0.04 * repeat, 4 * repeat)) == pytest.approx(0.01)
    assert plan._rate(lambda repeat: (2.0, 8)) == pytest.approx(0.25)  # one try fills the time
