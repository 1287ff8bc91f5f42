"""A plan counts what a run then does; its estimates are finite, and it refuses what a run refuses."""

import math

import pandas as pd
import pytest

from fedjax_fraud import cache, grid, plan
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
    "all or half of the banks": dict(algorithms=["fedavg", "ditto"], participation=[0.5, 1.0]),
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


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    "changes, words",
    [
        (dict(seeds=10**8), "`seeds` makes .* too large, got 100,000,000: .* x 100,000,000 seeds.*Lower it to 8,333,"),
        (dict(seeds=range(10**9)), "`seeds` .* of 3 clients are 120,000,000,000 clients, and at most 1,000,000 fit"),
        (dict(seeds=10**30), "`seeds` must be at most 4,294,967,296, got 1,0"),
        (dict(num_clients=10**7), "`num_clients` makes .* got 10,000,000.*Lower it to 12,500"),
        (dict(partition_kind="natural", seeds=90_000, alphas=[1.0]), "`seeds` makes"),
    ],
)
def test_a_sweep_that_no_machine_holds_is_refused_at_once(monkeypatch, changes, words, dry_run):
    dealt = []

    def count(*arguments, **options):
        dealt.append(arguments)
        return make(*arguments, **options)

    make = grid.partition_rows
    monkeypatch.setattr(grid, "partition_rows", count)
    options = dict(algorithms=["fedprox", "scaffold"], mu=[0.1, 0.2, 0.3], client_lr=[0.1, 0.2])
    options |= dict(alphas=[0.1, 0.5, 1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=words):
        run_sweep(**(options | changes), dry_run=dry_run)
    assert len(dealt) <= 2  # banks are counted by the first seed's


def test_crossing_far_too_many_conditions_is_refused_before_they_are_crossed():
    many = [value / 1001 for value in range(1, 1001)]
    with pytest.raises(ValueError, match=r"`stragglers` makes .* \(1,000 stragglers x 1,000 drop_before x"):
        run_sweep(stragglers=many, drop_before=many, drop_after=many)


def test_many_seeds_are_planned_from_the_first_ones(monkeypatch):
    options = dict(algorithms=["fedavg", "fedprox"], client_lr=RATE, num_rounds=3, drop_before=0.2, seeds=12)
    exact = run_sweep(**options, dry_run=True)
    monkeypatch.setattr(plan, "DEALT_CLIENTS", 100)
    found = run_sweep(**options, dry_run=True)
    assert (exact.num_seeds, exact.num_dealt, found.num_seeds) == (12, 12, 12) and 1 < found.num_dealt < 12
    assert (found.num_federations, found.num_programs) == (exact.num_federations, exact.num_programs)
    same = ["algorithm", "alpha", "num_settings", "num_seeds"]
    pd.testing.assert_frame_equal(found.settings[same], exact.settings[same])
    for name in ("steps", "rows", "bytes"):
        assert found.settings[name].sum() == pytest.approx(exact.settings[name].sum(), rel=0.2)
    assert found.estimate.peak_bytes == pytest.approx(exact.estimate.peak_bytes, rel=0.02)
    assert f"estimates, from the first {found.num_dealt} of 12 seeds" in "\n".join(plan_lines(found))
    assert "all exact" in "\n".join(plan_lines(exact))


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
