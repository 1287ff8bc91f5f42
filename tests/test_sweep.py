"""`sweep`: many federations in one program give what each of them gives alone, and the tables say what happened."""

import functools
import inspect
import json
import math
import os
import pathlib
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
import scipy.special
import sklearn.metrics

import fedjax_fraud as ff
from fedjax_fraud import algorithms, frames, partition, pool
from fedjax_fraud.data import split
from fedjax_fraud.report import strict_json
from fedjax_fraud.simulate import simulate
from fedjax_fraud.sweep import _check_rows, sweep
from fedjax_fraud.types import Model, Partition, Transactions
from tests.test_report import bare_reports

ROUNDS, BATCH, CLIENTS, WIDTH = 2, 16, 3, 4
ALPHAS, SEEDS, MUS = (0.1, 1.0), (0, 1), (0.0, 0.3)
RATE, WILD_RATE, PARTICIPATION = 0.2, 1e4, 0.5
SCORES = ["log_loss", "average_precision", "roc_auc"]
MEASURES = [*SCORES, "delta_norm_mean", "delta_norm_max", "drift"]
COUNTS = ["num_participants", "num_rejected", "skipped", "num_steps", "num_rows"]
KEYS = ["algorithm", "alpha", "seed", "client_lr", "mu", "num_epochs", "round"]

# 40 steps at most, each some ten float32 operations (2**-24 of rounding) in another order in another program.
CLOSE = dict(rtol=2e-5, atol=2e-5)


def _init(key):
    return {"w": jax.random.normal(key, (WIDTH,)), "b": jnp.zeros(())}


def _apply(params, x):
    return x @ params["w"] + params["b"]


LINEAR = Model(_init, _apply)  # starts at random, so that a mix-up of starts shows


def make_tables(num_rows=400, num_positives=40, seed=3):
    """A split table whose frauds are only somewhat apart from the rest."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(num_rows) < num_positives).astype(np.int32)
    features = (rng.normal(size=(num_rows, WIDTH)) + 0.8 * labels[:, None]).astype(np.float32)
    table = Transactions(
        features,
        labels,
        tuple("abcd"),
        amount=rng.lognormal(size=num_rows),
        time=np.arange(num_rows),
        silo=rng.choice(["north", "east", "west"], num_rows),
        hours_per_unit=1.0,
    )
    return split(table, by="random", seed=0)


def run_sweep(**changes):
    options = dict(
        algorithms=["fedavg", "fedprox", "scaffold"],
        alphas=list(ALPHAS),
        seeds=list(SEEDS),
        num_clients=CLIENTS,
        num_rounds=ROUNDS,
        batch_size=BATCH,
        client_lr=[RATE, WILD_RATE],
        mu=list(MUS),
        participation=PARTICIPATION,
        model=LINEAR,
    )
    return sweep(*make_tables(), **(options | changes))


@pytest.fixture(scope="module")
def tables():
    return make_tables()


class Watcher:
    """Keeps what it is told of the rounds, and how long a sweep's rounds took by its own clock."""

    def __init__(self):
        self.paces, self.calls = [], []

    def pace(self, pace):
        self.paces.append(pace)

    def __call__(self, what, done, total):
        self.calls.append((what, done, total))


@pytest.fixture(scope="module")
def watcher():
    return Watcher()


@pytest.fixture(scope="module")
def result(watcher):
    return run_sweep(progress=watcher)


@pytest.fixture(scope="module")
def alone():
    """SCAFFOLD by itself: one rate, no baselines."""
    return run_sweep(algorithms=["scaffold"], client_lr=RATE, baselines=False)


@pytest.fixture(scope="module")
def few_positives():
    """Known fault: 8 positives over 20 clients, so most of them have one class, on both sides of the split."""
    calls = []
    result = sweep(
        *make_tables(num_positives=8),
        algorithms=["fedavg"],
        alphas=[0.1],
        seeds=1,
        num_clients=20,
        num_rounds=1,
        batch_size=BATCH,
        model=LINEAR,
        progress=lambda *call: calls.append(call),
    )
    result.manifest["progress"] = calls
    return result


@functools.cache
def algorithm(name, mu=None):
    """One object for each, so that `simulate` compiles once for each."""
    if name == "scaffold":
        return algorithms.scaffold(RATE, option=2)
    return algorithms.fedavg(optax.sgd(RATE)) if mu is None else algorithms.fedprox(optax.sgd(RATE), mu=mu)


def owners(labels, alpha, seed):
    return partition.dirichlet_labels(labels, CLIENTS, alpha, seed)


def simulate_alone(fed_algorithm, train, test, owned, seed, **changes):
    options = dict(num_rounds=ROUNDS, batch_size=BATCH, num_lanes=2, chunk_length=4)
    return simulate(fed_algorithm, LINEAR, train, owned, test=test, seed=seed, **(options | changes))


def rows_of(frame, **wanted):
    """The rows with these values, in order of rounds; None finds NaN."""
    for name, value in wanted.items():
        frame = frame[frame[name].isna() if value is None else frame[name] == value]
    return frame.sort_values("round") if "round" in frame else frame


def check_history(rows, history):
    """A setting's rows hold the history of the same run made alone."""
    assert list(rows["round"]) == list(range(1, ROUNDS + 1))
    for name in MEASURES:
        np.testing.assert_allclose(rows[name], getattr(history, name), err_msg=name, **CLOSE)
    for name in COUNTS:
        np.testing.assert_array_equal(rows[name], getattr(history, name), err_msg=name)


def check_params(result, rows, params):
    (setting,) = rows.setting.unique()
    found = jax.tree.map(lambda leaf: leaf[setting], result.params)
    chex.assert_trees_all_close(found, jax.tree.map(np.asarray, params), **CLOSE)


def scores_of(labels, logits):
    """scikit-learn's, NaN for one class; the loss is defined for one class too."""
    labels, logits = np.asarray(labels), np.asarray(logits, np.float64)
    loss = np.mean(np.logaddexp(0, np.where(labels == 1, -logits, logits))) if labels.size else np.nan
    if len(np.unique(labels)) < 2:
        return [loss, np.nan, np.nan]
    return [
        loss,
        sklearn.metrics.average_precision_score(labels, logits),
        sklearn.metrics.roc_auc_score(labels, logits),
    ]


# ---- the same as alone ------------------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("name, mu", [("fedavg", None), ("fedprox", 0.3), ("scaffold", None)])
def test_every_federation_equals_its_simulation_alone(result, tables, name, mu):
    train, test = tables
    for alpha in ALPHAS:
        for seed in SEEDS:
            owned = owners(train.labels, alpha, seed)
            state, history = simulate_alone(algorithm(name, mu), train, test, owned, seed, participation=PARTICIPATION)
            rows = rows_of(result.frame(), algorithm=name, alpha=alpha, seed=seed, client_lr=RATE, mu=mu)
            check_history(rows, history)
            check_params(result, rows, state.server.params)


def test_the_packing_does_not_matter(tables):
    train, test = tables
    owned = owners(train.labels, 0.1, 0)
    packed, packed_history = simulate_alone(algorithm("scaffold"), train, test, owned, 0)
    plain, plain_history = simulate_alone(algorithm("scaffold"), train, test, owned, 0, num_lanes=1, chunk_length=1)
    chex.assert_trees_all_close(packed, plain, strict=True, **CLOSE)
    chex.assert_trees_all_close(packed_history, plain_history, strict=True, **CLOSE)


def test_the_centralised_run_is_one_client_with_all_rows(result, tables):
    train, test = tables
    for seed in SEEDS:
        order = owners(train.labels, ALPHAS[0], seed).order
        whole = Partition(order, np.zeros(1, np.int32), np.full(1, len(order), np.int32))
        state, history = simulate_alone(algorithm("fedavg"), train, test, whole, seed)
        for alpha in ALPHAS:  # it knows no alpha, and is repeated for each
            rows = rows_of(result.frame(), algorithm="centralised", alpha=alpha, seed=seed, client_lr=RATE)
            check_history(rows, history)
            check_params(result, rows, state.server.params)
            assert (rows[["bytes_down", "bytes_up"]] == 0).all(axis=None)


def test_a_bank_alone_is_a_federation_in_which_only_that_bank_works(result, tables):
    train, test = tables
    for alpha in ALPHAS:
        for seed in SEEDS:
            owned, of_test = owners(train.labels, alpha, seed), partition.client_of(owners(test.labels, alpha, seed))
            finals = []
            for bank in range(CLIENTS):
                only = np.tile(np.arange(CLIENTS) == bank, (ROUNDS, 1))
                state, history = simulate_alone(algorithm("fedavg"), train, test, owned, seed, work=only)
                finals.append([getattr(history, name)[-1] for name in SCORES])
                mine = of_test == bank
                wanted = scores_of(test.labels[mine], LINEAR.apply(state.server.params, test.features[mine]))
                own = dict(algorithm="local_only", alpha=alpha, seed=seed, client_lr=RATE, client=bank)
                (found,) = rows_of(result.banks, **own)[SCORES].to_numpy()
                np.testing.assert_allclose(found, wanted, **CLOSE)
            has_rows = owned.count > 0
            mean = rows_of(result.frame(), algorithm="local_only", alpha=alpha, seed=seed, client_lr=RATE)
            assert list(mean["round"]) == [ROUNDS]
            np.testing.assert_allclose(mean[SCORES].to_numpy()[0], np.mean(np.array(finals)[has_rows], 0), **CLOSE)
            assert mean.num_participants.item() == has_rows.sum()


def test_the_first_bank_alone_is_one_client_with_a_table_of_its_own(result, tables):
    """Client 0 of any federation has the same batches, since they depend on the client's number and its rows."""
    train, test = tables
    owned, of_test = owners(train.labels, 1.0, 0), partition.client_of(owners(test.labels, 1.0, 0))
    rows = owned.order[: owned.count[0]]
    table = Transactions(train.features[rows], train.labels[rows], train.names)
    size = len(rows)
    single = Partition(np.arange(size, dtype=np.int32), np.zeros(1, np.int32), np.full(1, size, np.int32))
    state, _ = simulate_alone(algorithm("fedavg"), table, None, single, 0)
    wanted = scores_of(test.labels[of_test == 0], LINEAR.apply(state.server.params, test.features[of_test == 0]))
    found = rows_of(result.banks, algorithm="local_only", alpha=1.0, seed=0, client_lr=RATE, client=0)
    assert found.num_train.item() == size
    np.testing.assert_allclose(found[SCORES].to_numpy()[0], wanted, **CLOSE)


def test_bank_scores_are_those_of_the_final_model_on_the_bank_s_own_test_rows(result, tables):
    train, test = tables
    for row in result.banks[result.banks.algorithm != "local_only"].itertuples():
        mine = partition.client_of(owners(test.labels, row.alpha, row.seed)) == row.client
        params = jax.tree.map(lambda leaf, row=row: leaf[row.setting], result.params)
        wanted = scores_of(test.labels[mine], LINEAR.apply(params, test.features[mine]))
        found = [row.log_loss, row.average_precision, row.roc_auc]
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
        assert (row.num_test, row.num_test_positives) == (mine.sum(), test.labels[mine].sum())
        assert row.num_train == owners(train.labels, row.alpha, row.seed).count[row.client]


# ---- pairs and repeats ------------------------------------------------------------------------------------------


@pytest.mark.compiled
def test_fedprox_with_mu_zero_is_fedavg_bit_for_bit(result):
    frame = result.frame()
    plain, pulled = (rows_of(frame, algorithm=a, mu=m) for a, m in (("fedavg", None), ("fedprox", 0.0)))
    same = [name for name in frame.columns if name not in ("setting", "algorithm", "mu")]
    pd.testing.assert_frame_equal(
        plain.sort_values(KEYS)[same].reset_index(drop=True),
        pulled.sort_values(KEYS)[same].reset_index(drop=True),
        check_exact=True,
    )
    other = rows_of(frame, algorithm="fedprox", mu=MUS[1], client_lr=RATE)
    assert not np.array_equal(other.log_loss, rows_of(plain, client_lr=RATE).log_loss)


@pytest.mark.compiled
def test_the_same_seeds_give_the_same_bits_and_leave_numpy_s_generator_where_it_was(alone):
    np.random.seed(5)
    before = np.random.get_state()[1].tolist()
    again = run_sweep(algorithms=["scaffold"], client_lr=RATE, baselines=False)
    pd.testing.assert_frame_equal(alone.frame(), again.frame(), check_exact=True)
    pd.testing.assert_frame_equal(alone.banks, again.banks, check_exact=True)
    chex.assert_trees_all_equal(alone.params, again.params, strict=True)
    assert np.random.get_state()[1].tolist() == before


def test_results_do_not_depend_on_the_other_federations_of_the_sweep(result, alone):
    among = rows_of(result.frame(), algorithm="scaffold", client_lr=RATE).sort_values(KEYS)
    lone = alone.frame().sort_values(KEYS)
    for name in MEASURES:
        np.testing.assert_allclose(among[name], lone[name], err_msg=name, **CLOSE)
    for name in [*KEYS, *COUNTS, "bytes_up", "bytes_down"]:
        np.testing.assert_array_equal(among[name], lone[name], err_msg=name)


def test_another_seed_gives_another_result(result):
    for name in ("fedavg", "scaffold"):
        first, second = (rows_of(result.frame(), algorithm=name, alpha=1.0, seed=s, client_lr=RATE) for s in SEEDS)
        assert not np.isclose(first.log_loss, second.log_loss).any()


def test_algorithms_of_a_pair_have_the_same_cohorts_and_steps(result):
    """Banks differ in size, so the rows visited tell who took part."""
    frame = result.frame()
    compared = frame[~frame.algorithm.isin(["centralised", "local_only"])]
    groups = compared.groupby(["alpha", "seed", "round"])
    for name in ("num_participants", "num_rows", "num_steps"):
        assert (groups[name].nunique() == 1).all(), name
    assert compared.num_participants.max() < CLIENTS
    assert compared.num_rows.nunique() > 2


def test_the_caller_s_matmul_precision_reaches_the_programs(monkeypatch):
    """JAX's context managers hold for one thread: tracing in another one would drop them without a word."""

    class SeenEnoughError(Exception):
        pass

    lower = pool.lower_pool

    def look(*arguments):
        programs.append(lower(*arguments).rounds.as_text())
        raise SeenEnoughError

    programs = []
    monkeypatch.setattr(pool, "lower_pool", look)
    for precision in ("default", "highest"):
        with jax.default_matmul_precision(precision), pytest.raises(SeenEnoughError):
            run_sweep(algorithms=["fedavg"], baselines=False)
    assert "HIGHEST" not in programs[0] and "HIGHEST" in programs[1]


def test_two_devices_give_the_results_of_one(result, tmp_path):
    """The settings are dealt to devices: sums are the same, but XLA may compile them in another way."""
    code = (
        "import sys; import jax; jax.config.update('jax_num_cpu_devices', 2)\n"
        "from tests.test_sweep import run_sweep\n"
        "result = run_sweep()\n"
        "assert len(result.manifest['devices']) == 2\n"
        "result.rounds.to_pickle(sys.argv[1]); result.banks.to_pickle(sys.argv[2])\n"
    )
    paths = [str(tmp_path / name) for name in ("rounds.pkl", "banks.pkl")]
    root = pathlib.Path(__file__).parent.parent
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(root / ".jax_cache")}
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
    subprocess.run([sys.executable, "-c", code, *paths], check=True, cwd=root, env=environment, timeout=300)
    for one, path in zip((result.rounds, result.banks), paths, strict=True):
        sane = one.client_lr == RATE
        pd.testing.assert_frame_equal(one[sane], pd.read_pickle(path)[sane], check_exact=False, **CLOSE)


# ---- the tables -------------------------------------------------------------------------------------------------


def test_the_frame_has_one_row_for_each_setting_and_round(result):
    frame = result.frame()
    assert not frame.duplicated(KEYS).any()
    pairs, rates = len(ALPHAS) * len(SEEDS), 2
    sizes = frame.groupby("algorithm").size()
    assert sizes.to_dict() == {
        "fedavg": pairs * rates * ROUNDS,
        "fedprox": pairs * rates * ROUNDS * len(MUS),
        "scaffold": pairs * rates * ROUNDS,
        "centralised": pairs * rates * ROUNDS,
        "local_only": pairs * rates,
    }
    assert (frame.num_clients == CLIENTS).all()
    assert len(result.banks) == CLIENTS * pairs * rates * (len(MUS) + 4)
    assert len(result.partitions) == CLIENTS * pairs
    assert frame.mu.isna().equals(frame.algorithm != "fedprox")


def test_the_frame_is_a_copy(result):
    frame = result.frame()
    frame["seed"] = -1
    del frame["alpha"]
    assert "alpha" in result.rounds and (result.rounds.seed >= 0).all()


def test_settings_name_the_same_federation_in_both_tables(result):
    keys = ["setting", "algorithm", "seed", "client_lr", "mu", "num_epochs"]
    named = [
        set(map(str, table[keys].drop_duplicates().itertuples(index=False))) for table in (result.rounds, result.banks)
    ]
    assert named[0] == named[1]


def test_every_final_model_has_decisions_of_all_banks_and_of_each(result, tables):
    decisions = result.decisions
    shared = result.rounds[result.rounds.algorithm != "local_only"]
    keys = ["setting", "alpha"]
    assert sorted(decisions[keys].drop_duplicates().apply(tuple, axis=1)) == sorted(
        shared[keys].drop_duplicates().apply(tuple, axis=1)
    )
    assert (decisions.groupby(keys).size() == 1 + CLIENTS).all()
    labels = tables[1].labels
    pooled = decisions[(decisions.client == -1) & (decisions.algorithm == "scaffold")]
    for line in pooled.itertuples():
        logits = np.asarray(
            _apply(jax.tree.map(lambda leaf, i=line.setting: leaf[i], result.params), tables[1].features)
        )
        if np.isfinite(logits).all():
            prob = scipy.special.expit(logits.astype(np.float64))
            np.testing.assert_allclose(line.brier, sklearn.metrics.brier_score_loss(labels, prob), rtol=1e-4)
    budgets = result.manifest["decisions"]["budgets"]
    assert list(budgets) == ["at_0.001", "at_0.005", "at_0.01", "per_day"]


def test_bytes_are_participants_times_vectors_times_parameters(result):
    num_params, model_bytes = frames.model_size(LINEAR)
    assert (num_params, model_bytes) == (WIDTH + 1, 4 * (WIDTH + 1))
    assert result.manifest["model"]["num_params"] == num_params
    frame = result.frame()
    vectors = frame.algorithm.map({"scaffold": 2, "local_only": 0, "centralised": 0}).fillna(1)
    for name in ("bytes_up", "bytes_down"):
        np.testing.assert_array_equal(frame[name], frame.num_participants * vectors * model_bytes)
    averaged, controlled = (rows_of(frame, algorithm=a).sort_values(KEYS) for a in ("fedavg", "scaffold"))
    for name in ("bytes_up", "bytes_down"):
        np.testing.assert_array_equal(controlled[name], 2 * averaged[name].to_numpy())


def test_a_wild_rate_is_marked_as_diverged_and_nothing_else_is(result):
    frame = result.frame()
    assert frame.diverged.dtype == bool
    assert frame.diverged.equals(frame.client_lr == WILD_RATE)


def test_progress_counts_up_to_all_rounds_of_all_settings(few_positives):
    calls = few_positives.manifest["progress"]
    rounds = [(done, total) for what, done, total in calls if what == "rounds"]
    assert rounds[-1] == (22, 22)  # FedAvg, centralised, 20 banks
    assert rounds == sorted(rounds)
    assert [what for what, *_ in calls][:2] == ["partitions", "compile"]


def test_the_pace_is_rows_trained_over_the_time_of_the_rounds(result, watcher):
    """Half of the banks are absent, and their rows are not trained."""
    last, work = watcher.paces[-1], result.manifest["work"]
    assert last.rows == work["rows_trained"]
    assert [pace.rows for pace in watcher.paces] == sorted(pace.rows for pace in watcher.paces)
    assert last.seconds <= result.manifest["timings"]["run_seconds"]
    assert last.rows_per_second == last.rows / last.seconds >= work["rows_per_second"]
    assert (last.program, last.num_programs, last.round_index, last.num_rounds) == (2, 2, ROUNDS, ROUNDS)
    assert (last.steps, last.seconds_left) == (pytest.approx(work["executed_steps"]), pytest.approx(0, abs=1e-9))
    num_settings = 8 + 16 + 8 + 4 + 24  # FedAvg, FedProx, SCAFFOLD, centralised, banks alone
    assert watcher.calls[-3] == ("rounds", num_settings * ROUNDS, num_settings * ROUNDS)


def test_what_is_written_is_what_is_loaded(result, tmp_path):
    with bare_reports():
        ff.report.write(result, tmp_path)
    loaded = ff.SweepResult.load(tmp_path)
    for name in ("rounds", "banks", "partitions", "decisions"):
        pd.testing.assert_frame_equal(getattr(loaded, name), getattr(result, name), check_exact=True)
    assert loaded.manifest == result.manifest
    chex.assert_trees_all_equal(loaded.params, result.params, strict=True)
    assert "models.safetensors" in json.loads((tmp_path / "manifest.json").read_text())["files"]


def test_the_manifest_holds_what_the_numbers_depend_on(result, tables):
    manifest = json.loads(strict_json(result.manifest), parse_constant=pytest.fail)
    assert manifest["config"] | dict(algorithms=["fedavg", "fedprox", "scaffold"]) == manifest["config"]
    for name, value in dict(
        alphas=list(ALPHAS), seeds=list(SEEDS), mu=list(MUS), client_lr=[RATE, WILD_RATE], num_epochs=[1],
        participation=[PARTICIPATION], batch_size=BATCH, num_rounds=ROUNDS, num_clients=CLIENTS, baselines=True,
        partition_kind="labels",
    ).items():  # fmt: skip
        assert manifest["config"][name] == value, name
    versions = manifest["versions"]
    assert versions["jax"] == jax.__version__
    assert versions["numpy"] == np.__version__
    assert "threefry2x32" in versions["random_generator"] and "PCG64" in versions["random_generator"]
    assert manifest["data"]["train"]["num_rows"] == len(tables[0].labels)
    assert len(manifest["data"]["sha256"]) == 64
    assert set(manifest["timings"]) >= {"compile_seconds", "run_seconds", "total_seconds"}
    assert all(seconds > 0 for seconds in manifest["timings"].values())
    assert manifest["devices"] == [str(device) for device in jax.devices()]


def test_the_manifest_counts_the_work(result, tables):
    work, frame = result.manifest["work"], result.frame()
    assert work["num_programs"] == 2  # SCAFFOLD, and all that averages: the baselines too
    assert work["num_federations"] == 4 * len(ALPHAS) * len(SEEDS) * 2
    assert work["useful_steps"] <= work["executed_steps"]
    trained = frame[~frame.algorithm.isin(["centralised", "local_only"])].num_rows.sum()
    num_runs = 2 * len(SEEDS) * (1 + len(ALPHAS))  # all rows every round: centralised once a seed, banks for each alpha
    assert work["rows_trained"] == trained + num_runs * ROUNDS * len(tables[0].labels)


def test_the_data_hash_changes_with_a_single_label(result, alone, few_positives):
    assert result.manifest["data"]["sha256"] == alone.manifest["data"]["sha256"]
    assert result.manifest["data"]["sha256"] != few_positives.manifest["data"]["sha256"]


# ---- banks without frauds ---------------------------------------------------------------------------------------


def test_a_sweep_finishes_though_most_banks_have_no_positives(few_positives):
    frame, banks = few_positives.frame(), few_positives.banks
    assert np.isfinite(frame[SCORES].to_numpy()).all()
    assert not frame.diverged.any()
    assert few_positives.partitions.num_positives.sum() == 6
    assert (few_positives.partitions.num_positives == 0).sum() > 10
    one_class = (banks.num_test_positives == 0) | (banks.num_test_positives == banks.num_test)
    assert banks.average_precision.isna().equals(one_class)
    assert banks.roc_auc.isna().equals(one_class)
    assert banks.log_loss.isna().equals(banks.num_test == 0)
    assert banks.groupby("algorithm").size().to_dict() == {"fedavg": 20, "centralised": 20, "local_only": 20}


def test_banks_without_rows_are_not_averaged_into_the_banks_alone(few_positives):
    alone = rows_of(few_positives.frame(), algorithm="local_only")
    with_rows = few_positives.partitions.num_examples > 0
    assert alone.num_participants.item() == with_rows.sum() <= 20
    assert alone.num_rows.item() == few_positives.partitions.num_examples.sum()


def test_a_natural_partition_is_swept_by_bank_name():
    result = run_sweep(
        partition_kind="natural",
        algorithms=["fedavg"],
        client_lr=RATE,
        seeds=1,
        num_clients=7,
        participation=1.0,
        baselines=False,
    )
    train, test = make_tables()
    assert result.manifest["config"]["num_clients"] == 3
    assert result.partitions.alpha.isna().all()
    assert result.rounds.alpha.isna().all()
    sizes = pd.Series(train.silo).value_counts().sort_index()
    assert result.partitions.num_examples.tolist() == sizes.tolist()
    assert result.partitions.bank.tolist() == sizes.index.tolist()
    assert (result.banks.groupby("client").bank.unique().map(list) == [[name] for name in sizes.index]).all()
    assert (result.banks.groupby("algorithm").num_test.sum() == len(test.labels)).all()
    owned = partition.natural(train.silo)
    state, history = simulate_alone(algorithm("fedavg"), train, test, owned, 0)
    rows = rows_of(result.frame(), algorithm="fedavg")
    check_history(rows, history)
    check_params(result, rows, state.server.params)


# ---- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes, words",
    [
        (dict(algorithms=["fedsgd"]), ["algorithms", "fedsgd", "Choose"]),
        (dict(algorithms=[]), ["algorithms", "none", "Add"]),
        (dict(algorithms=["fedavg", "fedavg"]), ["algorithms", "fedavg", "Remove"]),
        (dict(alphas=[0.0]), ["alphas", "0.0", "Pass"]),
        (dict(alphas=[math.nan]), ["alphas", "nan", "Pass"]),
        (dict(alphas=[math.inf]), ["alphas", "inf", "Pass"]),
        (dict(client_lr=-1.0), ["client_lr", "-1.0", "Pass"]),
        (dict(mu=-0.1), ["mu", "-0.1", "Pass"]),
        (dict(seeds=[]), ["seeds", "none", "Add"]),
        (dict(seeds=0), ["seeds", "0", "Pass"]),
        (dict(seeds=[1, 1]), ["seeds", "1", "Remove"]),
        (dict(seeds=[-1]), ["seed", "-1", "Pass"]),
        (dict(seeds=[2**32]), ["seed", "4294967296", "Pass"]),
        (dict(num_epochs=[0]), ["num_epochs", "0", "Pass"]),
        (dict(num_epochs=[1, 1]), ["num_epochs", "1", "Remove"]),
        (dict(num_clients=0), ["num_clients", "0", "Pass"]),
        (dict(num_clients=1000), ["num_clients", "1000", "Lower"]),
        (dict(num_rounds=0), ["num_rounds", "0", "Pass"]),
        (dict(batch_size=0), ["batch_size", "0", "Pass"]),
        (dict(participation=0.0), ["participation", "0.0", "share"]),
        (dict(participation=1.5), ["participation", "1.5", "share"]),
        (dict(participation=math.nan), ["participation", "nan", "share"]),
        (dict(partition_kind="labelz"), ["partition_kind", "labelz", "Choose"]),
        (dict(partition_kind="feature", partition_feature="colour"), ["partition_feature", "colour", "Choose"]),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_wrong_argument_is_refused_in_one_line(changes, words):
    with pytest.raises(ValueError) as caught:
        run_sweep(**changes)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_tables_that_cannot_be_learned_from_are_refused(tables):
    train, test = tables
    broken = train.features.copy()
    broken[5, 1] = np.nan
    for table, word in (
        (train._replace(labels=np.zeros_like(train.labels)), "0 frauds"),
        (train._replace(features=broken), "row 5"),
        (train._replace(labels=train.labels * 2), "must be 0 or 1"),
        (train._replace(labels=train.labels[1:]), "Pass one label for each row"),
    ):
        with pytest.raises(ValueError, match=word):
            sweep(table, test, model=LINEAR)


def test_tables_and_results_are_shown_in_one_line_without_their_arrays(tables, few_positives):
    labels = tables[0].labels
    wanted = f"Transactions({len(labels)} rows, {labels.sum()} frauds, 4 features, source='memory')"
    assert repr(tables[0]) == wanted
    shown = repr(few_positives)
    assert shown.startswith("SweepResult(fedavg") and "; source='memory')" in shown and len(shown.splitlines()) == 1
    assert f"{few_positives.frame().setting.nunique()} settings of 20 banks" in shown


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("side", ["train", "test"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_rows_of_one_class_are_refused_on_either_side(tables, side, label, dry_run):
    both = dict(zip(("train", "test"), tables, strict=True))
    both[side] = both[side]._replace(labels=np.full_like(both[side].labels, label))
    num_rows = len(both[side].labels)
    with pytest.raises(ValueError, match=f"`{side}` has {label * num_rows} frauds among {num_rows} rows.*`test_frac"):
        sweep(*both.values(), model=LINEAR, dry_run=dry_run)


def test_rows_that_are_no_transactions_are_refused_by_name():
    check = inspect.unwrap(_check_rows)  # without the tests' type checks, which users do not have
    with pytest.raises(ValueError, match=r"`train` must be Transactions.*got ndarray"):
        check(np.zeros((3, 2)), make_tables()[1])
