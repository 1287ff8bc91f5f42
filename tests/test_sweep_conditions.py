"""Sweeps in which things go wrong, and in which methods keep more than a global model."""

import math

import numpy as np
import optax
import pytest

from fedjax_fraud import algorithms, grid, privacy, report
from fedjax_fraud.accountant import epsilon_of
from fedjax_fraud.conditions import Conditions
from fedjax_fraud.program import History
from fedjax_fraud.simulate import simulate
from fedjax_fraud.sweep import check_states
from tests.test_sweep import BATCH, CLIENTS, LINEAR, MEASURES, RATE, ROUNDS, make_tables, owners, rows_of, run_sweep

ONE = dict(
    algorithms=["fedavg"],
    alphas=[1.0],
    seeds=[0],
    client_lr=RATE,
    mu=0.0,
    participation=1.0,
    num_lanes=2,
    chunk_length=4,
)
MODEL_BYTES = 20  # four weights and a bias


@pytest.fixture(scope="module")
def crossed():
    """Stragglers x policies, with a share of the banks, in one program."""
    return run_sweep(
        **(ONE | dict(algorithms=["fedavg", "scaffold"], seeds=[0, 1])),
        stragglers=[0.0, 0.7],
        policy=["wait", "partial", "drop"],
        num_epochs=3,
        drop_after=[0.0, 0.4],
        step_seconds=[0.01, 0.02, 0.03],
        latency_seconds=1.0,
    )


def test_conditions_are_crossed_and_where_nobody_is_late_policies_are_one(crossed):
    rounds = crossed.rounds[crossed.rounds.algorithm == "fedavg"]
    found = rounds[["stragglers", "policy", "drop_after"]].drop_duplicates()
    assert len(found) == 2 * (1 + 3)
    assert set(found.policy[found.stragglers == 0]) == {"wait"}
    assert (rounds.participation == 1).all() and (rounds.fault == "none").all()


@pytest.mark.compiled
def test_a_setting_is_the_same_alone_and_among_others_under_conditions(crossed):
    """To the bit: the other settings stand in other lanes of the same steps."""
    one = dict(stragglers=0.7, policy="partial", drop_after=0.4)
    alone = run_sweep(**ONE, **one, num_epochs=3, step_seconds=[0.01, 0.02, 0.03], latency_seconds=1.0, baselines=False)
    mine = rows_of(alone.rounds, algorithm="fedavg")
    among = rows_of(crossed.rounds, algorithm="fedavg", seed=0, **one)
    for name in [*MEASURES, "num_steps", "num_participants", "num_started", "seconds"]:
        np.testing.assert_array_equal(mine[name], among[name], err_msg=name)


def test_a_sweep_s_setting_equals_simulate_under_the_same_conditions(crossed):
    train, test = make_tables()
    conditions = Conditions(stragglers=0.7, policy="drop", drop_after=0.4)
    _, history = simulate(
        algorithms.fedavg(optax.sgd(RATE)),
        LINEAR,
        train,
        owners(train.labels, 1.0, 0),
        test=test,
        num_rounds=ROUNDS,
        num_epochs=3,
        batch_size=BATCH,
        conditions=conditions,
        step_seconds=[0.01, 0.02, 0.03],
        link_seconds=1.0 + 2 * MODEL_BYTES / 12.5e6,
    )
    rows = rows_of(crossed.rounds, algorithm="fedavg", seed=0, stragglers=0.7, policy="drop", drop_after=0.4)
    np.testing.assert_allclose(rows.seconds, history.seconds, rtol=1e-6)
    np.testing.assert_array_equal(rows.num_steps, history.num_steps)
    np.testing.assert_allclose(rows.log_loss, history.log_loss, rtol=2e-5)


def test_who_started_is_paid_for_downwards_and_who_came_back_upwards(crossed):
    rounds = crossed.rounds
    for name, vectors in (("fedavg", 1), ("scaffold", 2)):
        rows = rounds[rounds.algorithm == name]
        np.testing.assert_array_equal(rows.bytes_down, rows.num_started * vectors * MODEL_BYTES)
        np.testing.assert_array_equal(rows.bytes_up, rows.num_participants * vectors * MODEL_BYTES)
    late = rounds[(rounds.policy == "drop") & (rounds.drop_after == 0)]
    assert (late.num_started == CLIENTS).all() and (late.num_participants == 1).all()


def test_waiting_costs_time_and_a_deadline_does_not(crossed):
    def seconds(policy):
        return rows_of(
            crossed.rounds, algorithm="fedavg", seed=0, stragglers=0.7, policy=policy, drop_after=0.0
        ).seconds

    assert (seconds("wait").to_numpy() > seconds("partial").to_numpy()).all()
    np.testing.assert_allclose(seconds("partial"), seconds("drop"))


def test_baselines_know_no_conditions(crossed):
    baselines = crossed.rounds[crossed.rounds.algorithm.isin(["centralised", "local_only"])]
    for name in grid.CONDITION_KEYS:
        assert (baselines[name] == getattr(Conditions(), name)).all()
    assert (baselines.bytes_up == 0).all()


def test_a_trace_keeps_banks_out():
    available = np.array([[1, 0, 1], [0, 0, 0]])
    rounds = run_sweep(**ONE, available=available).rounds
    rows = rows_of(rounds, algorithm="fedavg")
    np.testing.assert_array_equal(rows.num_participants, [2, 0])
    np.testing.assert_array_equal(rows.skipped, [False, True])
    alone = rows_of(rounds, algorithm="local_only")
    assert alone.num_participants.item() == CLIENTS  # banks alone need nobody


def test_faults_are_in_the_table_and_hurt_nobody():
    rounds = run_sweep(**ONE, fault=["nan", "huge"], fault_rate=[0.0, 0.7], baselines=False).rounds
    assert set(zip(rounds.fault, rounds.fault_rate, strict=True)) == {("none", 0.0), ("nan", 0.7), ("huge", 0.7)}
    assert rounds.num_faulty.sum() > 0 and rounds.num_silent.sum() == 0
    assert np.isfinite(rounds.log_loss).all()
    # Both faults hit the same updates, and a rejected one is as good as absent.
    nan, huge = (rows_of(rounds, fault=fault) for fault in ("nan", "huge"))
    np.testing.assert_allclose(nan.log_loss, huge.log_loss, rtol=1e-6)


def test_diagnostics_are_measured_on_request():
    asked = run_sweep(**ONE, diagnostics=True, baselines=False).rounds
    assert (asked.dissimilarity > 0).all()
    assert (asked.inexactness_mean <= asked.inexactness_max).all() and (asked.inexactness_mean > 0).all()
    silent = run_sweep(**ONE, baselines=False).rounds
    assert silent.dissimilarity.isna().all() and silent.inexactness_max.isna().all()
    np.testing.assert_allclose(asked.log_loss, silent.log_loss, rtol=1e-6)


def test_banks_of_ditto_are_scored_by_their_own_models():
    """Without a pull its personal models are those of banks alone, from the same start on the same batches."""
    result = run_sweep(**(ONE | dict(algorithms=["fedavg", "ditto"], mu=0.0)))
    for name in ("log_loss", "average_precision"):
        ditto, alone, fedavg = (
            rows_of(result.banks, algorithm=which).sort_values("client")[name].to_numpy()
            for which in ("ditto", "local_only", "fedavg")
        )
        np.testing.assert_allclose(ditto, alone, rtol=2e-5)
        assert not np.allclose(ditto, fedavg)
    pooled = [rows_of(result.rounds, algorithm=which).log_loss.to_numpy() for which in ("fedavg", "ditto")]
    np.testing.assert_allclose(*pooled, rtol=1e-6)


def test_server_rates_are_each_method_s_own_or_crossed():
    names = ["fedavg", "fedavgm", "fedadam"]
    own = run_sweep(**(ONE | dict(algorithms=names)), baselines=False).rounds
    given = dict(zip(own.algorithm, own.server_lr, strict=True))
    assert math.isnan(given["fedavg"]) and (given["fedavgm"], given["fedadam"]) == (1.0, 0.1)
    crossed = run_sweep(**(ONE | dict(algorithms=names)), server_lr=[0.01, 0.5], baselines=False, dry_run=True)
    assert dict(zip(crossed.settings.algorithm, crossed.settings.num_settings, strict=True)) == {
        "fedavg": 1, "fedavgm": 2, "fedadam": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    "changes, words",
    [
        (dict(algorithms=["scaffold"], client_optimizer="adam"), "client_optimizer.*scaffold"),
        (dict(client_optimizer="lion"), "client_optimizer"),
        (dict(stragglers=[0.5, 2.0]), "stragglers"),
        (dict(policy=["wait", "wait"]), "policy"),
        (dict(available=np.ones((1, 3))), "available"),
        (dict(available=np.full((2, 3), 0.5)), "available"),
        (dict(step_seconds=[1.0, 2.0]), "step_seconds"),
        (dict(step_seconds=-1.0), "step_seconds"),
        (dict(bytes_per_second=0.0), "bytes_per_second"),
        (dict(server_lr=[-1.0]), "server_lr"),
        (dict(server_lr=[0.1]), "server_lr.*fedavgm"),
        (dict(policy="never"), "policy"),
        (dict(fault="nan"), "fault_rate"),
        (dict(fault_rate=0.2), "needs a `fault`"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes, words):
    with pytest.raises(ValueError, match=words):
        run_sweep(**(ONE | changes))


def test_a_state_that_broke_its_invariant_ends_the_sweep_by_name():
    """But not where the setting diverged, whose state is what rounding has left of huge numbers."""
    made = History(*(np.ones((3, 2)) for _ in History._fields[:-1]))
    federations = [grid.Federation("scaffold", 0.5, seed, RATE, math.nan, 1) for seed in (3, 4)]
    check_states(federations, made._replace(state_error=np.full((3, 2), np.nan)))
    check_states(federations, made._replace(state_error=np.full((3, 2), 1e-6)))
    broken = made._replace(state_error=np.array([[0, 0], [0, 0.1], [0, 0]]))
    with pytest.raises(RuntimeError, match=r"scaffold at alpha 0\.5, seed 4 broke its invariant by 0\.1"):
        check_states(federations, broken)
    check_states(federations, broken._replace(log_loss=np.array([[1, 1], [1, 1], [1, 9.0]])))
    huge_before = np.array([[1, 1], [1, 1], [1, 1e-3]]) * [1, 1e6]  # controls of 1e6 leave 0.06 behind in float32
    later = made._replace(state_error=np.array([[0, 0], [0, 1e-7], [0, 0.06]]), state_size=huge_before)
    check_states(federations, later)
    with pytest.raises(RuntimeError, match="seed 3 broke"):
        check_states(federations, later._replace(state_error=np.array([[0, 0], [0, 0], [0.06, 0]])))


# ---- noise ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def noisy():
    """SCAFFOLD without noise and with two sizes of it, in two programs."""
    many = ONE | dict(algorithms=["scaffold"], seeds=[0, 1])
    return run_sweep(**many, noise_multiplier=[0.0, 0.5, 2.0], clip_norm=0.5, delta=1e-5)


@pytest.mark.compiled
@pytest.mark.parametrize("options", [dict(noise_multiplier=0.0), dict(noise_multiplier=2.0, clip_norm=0.5)])
def test_a_setting_is_the_same_alone_and_among_others_with_noise(noisy, options):
    """To the bit: settings without noise keep a program of their own."""
    alone = run_sweep(**(ONE | dict(algorithms=["scaffold"]) | options), baselines=False)
    mine = rows_of(alone.rounds, algorithm="scaffold")
    among = rows_of(noisy.rounds, algorithm="scaffold", seed=0, noise_multiplier=options["noise_multiplier"])
    for name in MEASURES:
        np.testing.assert_array_equal(mine[name], among[name], err_msg=name)


def test_noise_is_crossed_and_baselines_have_none(noisy):
    found = noisy.rounds[["algorithm", "noise_multiplier"]].drop_duplicates().groupby("algorithm").size()
    assert found.to_dict() == {"scaffold": 3, "centralised": 1, "local_only": 1}


def test_a_noisy_setting_equals_simulate_of_the_private_algorithm(noisy):
    train, test = make_tables()
    _, history = simulate(
        privacy.make_private(algorithms.scaffold(RATE), 0.5, 2.0),
        LINEAR,
        train,
        owners(train.labels, 1.0, 0),
        test=test,
        num_rounds=ROUNDS,
        batch_size=BATCH,
    )
    rows = rows_of(noisy.rounds, algorithm="scaffold", seed=0, noise_multiplier=2.0)
    np.testing.assert_allclose(rows.log_loss, history.log_loss, rtol=2e-5)


def test_the_table_of_banks_says_what_each_bank_spent(noisy):
    spent = noisy.banks[noisy.banks.noise_multiplier == 2.0]
    steps = -(-spent.num_train // BATCH) * ROUNDS
    wanted = [epsilon_of(2.0, n, BATCH, s, 1e-5) for n, s in zip(spent.num_train, steps, strict=True)]
    np.testing.assert_array_equal(spent.epsilon, wanted)
    assert noisy.manifest["privacy"]["delta"] == 1e-5 and noisy.manifest["config"]["noise_multiplier"] == [0, 0.5, 2]
    assert np.isinf(rows_of(noisy.banks, algorithm="scaffold", noise_multiplier=0.0).epsilon).all()
    assert "epsilon" not in run_sweep(**ONE, baselines=False).banks


def test_the_dossier_of_a_noisy_sweep_has_a_section_on_privacy(noisy):
    text = report.dossier(noisy)
    section = text[text.index("## Privacy") :].split("\n## ")[0]
    most = noisy.banks[noisy.banks.noise_multiplier == 0.5].epsilon.max()
    assert "At delta 1e-05" in section and f"| {most:.4g} |" in section and "noise 2 |" in section


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(noise_multiplier=-1.0), "noise_multiplier"),
        (dict(noise_multiplier=math.inf), "noise_multiplier"),
        (dict(noise_multiplier=1.0, clip_norm=0.0), "clip_norm"),
        (dict(noise_multiplier=1.0, clip_norm=math.inf), "clip_norm"),
        (dict(clip_norm=2.0), "clip_norm.*no use"),
        (dict(noise_multiplier=1.0, delta=0.0), "delta"),
        (dict(noise_multiplier=1.0, algorithms=["ditto"]), "noise_multiplier.*ditto"),
    ],
)
def test_noise_that_cannot_be_is_refused_by_name(changes, words):
    with pytest.raises(ValueError, match=words):
        run_sweep(**(ONE | changes))


def test_clipping_norms_are_crossed_only_where_there_is_noise():
    made = grid.cross_conditions(
        (0.05, 0.95),
        None,
        **{name: [getattr(Conditions(), name)] for name in grid.CONDITION_KEYS}
        | dict(noise_multiplier=[0.0, 1.0], clip_norm=[0.5, 2.0]),
    )
    assert [(one.noise_multiplier, one.clip_norm) for one in made] == [(0.0, 0.5), (1.0, 0.5), (1.0, 2.0)]
