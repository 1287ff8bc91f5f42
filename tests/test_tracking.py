"""MLflow: what is read back is what the tables say; without it, or without its store, one error before training."""

import socket
import sys

import numpy as np
import pytest

from fedjax_fraud import report, tracking
from tests.test_report import fake_result

RESULT = fake_result(mus=(0.01, 0.1), alphas=(0.1, 0.5), diverged={("scaffold", 0.1, 3)})
NUM_CHILDREN = 2 * (1 + 2 + 1 + 2)  # alphas x (FedAvg, two FedProx, SCAFFOLD, two baselines)


# ---- what is logged, without MLflow -----------------------------------------------------------------------------


def test_every_line_of_the_summary_is_a_child():
    found = list(tracking.children(RESULT.rounds))
    summary = report.summarise(RESULT.rounds)
    assert len(found) == len(summary) == NUM_CHILDREN
    assert len({child.name for child in found}) == NUM_CHILDREN
    for child, row in zip(found, summary.to_dict("records"), strict=True):
        assert child.final["final_average_precision"] == row["average_precision"]
        last = max(child.rounds["average_precision"])
        for end in ("", "_low", "_high"):
            assert child.rounds[f"average_precision{end}"][last] == pytest.approx(row[f"average_precision{end}"])
        assert child.rounds["mb_so_far"][last] == pytest.approx(row["mb_total"], rel=1e-9, abs=1e-12)


def test_metrics_by_round_leave_out_what_diverged():
    (child,) = (one for one in tracking.children(RESULT.rounds) if one.name.startswith("SCAFFOLD, alpha 0.1"))
    rounds = RESULT.rounds
    own = rounds[(rounds.algorithm == "scaffold") & (rounds.alpha == 0.1) & ~rounds.diverged]
    assert (child.final["num_diverged"], child.final["num_used"]) == (1, 3)
    for step, group in own.groupby("round"):
        assert child.rounds["log_loss"][step] == pytest.approx(group.log_loss.mean())


def test_names_and_texts_are_such_that_every_store_takes_them():
    assert tracking._key("config.x:y=(z)") == "config.x_y__z_"
    assert tracking._text([0.1, None]) == "[ 0.1, null ]"
    cut = tracking._text("x" * 600)
    assert len(cut) <= tracking.MAX_TEXT and cut.endswith("(cut)")


def test_without_mlflow_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ValueError, match=r"`mlflow`.*not installed.*pip install 'fedjax-fraud\[mlflow\]'"):
        tracking.check_store("sqlite:///runs.db")


def test_a_server_at_which_nobody_listens_is_refused_at_once():
    with socket.socket() as taken:  # bound and not listening: nobody else takes the port meanwhile
        taken.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ValueError, match=r"`mlflow` 'http://127.*cannot be reached: .* Start the server"):
            tracking._check_server(uri)
    tracking._check_server("sqlite:///runs.db")


# ---- with the real package --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mlflow():
    """The package, which warns of things of its own."""
    pytest.importorskip("sqlalchemy", reason="the extra `mlflow` is not installed")
    return pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")


@pytest.fixture(scope="module")
def logged(mlflow, tmp_path_factory):
    """(client, the sweep's run, its children by name) after a log to SQLite."""
    place = tmp_path_factory.mktemp("mlflow")
    report.write(RESULT, place / "out")
    uri = f"sqlite:///{place}/runs.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        run_id = tracking.log_result(RESULT, uri, folder=place / "out")
        client = mlflow.MlflowClient(tracking_uri=uri)
        run = client.get_run(run_id)
        found = client.search_runs([run.info.experiment_id], f"tags.`{tracking.PARENT}` = '{run_id}'", max_results=1000)
        names = sorted(item.path for item in client.list_artifacts(run_id))
        return client, run, {child.info.run_name: child for child in found}, names


pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_sweeps_run_has_configuration_hash_versions_and_files(logged):
    _, run, _, names = logged
    assert run.info.run_name == "out" and run.info.status == "FINISHED"
    assert run.data.params["num_rounds"] == "5" and run.data.params["client_lr"] == "[ 0.05 ]"
    assert run.data.tags["data.sha256"] == "ab" * 32 and run.data.tags["versions.jax"] == "0.7.2"
    assert run.data.metrics["work.rows_trained"] == 6_400_000
    assert {"dossier.md", "summary.csv", "convergence.png", "manifest.json"} <= set(names)


def test_a_childs_metrics_are_those_of_the_tables(logged):
    client, _, children, _ = logged
    wanted = {child.name: child for child in tracking.children(RESULT.rounds)}
    assert children.keys() == wanted.keys()
    for name, run in children.items():
        assert run.info.status == "FINISHED"
        for metric, value in wanted[name].final.items():
            if np.isfinite(value):
                assert run.data.metrics[metric] == pytest.approx(value)
            else:
                assert metric not in run.data.metrics
    name = "FedProx (mu 0.1), alpha 0.5"
    for metric in ("average_precision", "average_precision_low", "roc_auc"):
        history = {entry.step: entry.value for entry in client.get_metric_history(children[name].info.run_id, metric)}
        assert history == pytest.approx(wanted[name].rounds[metric])
    assert children[name].data.params["mu"] == "0.1" and "server_lr" not in children[name].data.params


def test_a_store_that_cannot_be_used_is_refused_before_any_work(mlflow, tmp_path):
    with pytest.raises(ValueError, match=r"`mlflow`.*no folder"):
        tracking.check_store(f"sqlite:///{tmp_path}/nowhere/runs.db")
    with pytest.raises(ValueError, match=r"`mlflow` 'gopher://x' cannot be used"):
        tracking.check_store("gopher://x")


def test_a_failure_on_the_way_leaves_a_failed_run(mlflow, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path}/runs.db"

    def fail(*arguments):
        raise OSError("the disk is full")

    monkeypatch.setattr(tracking, "_log_child", fail)
    with pytest.raises(ValueError, match=r"failed on the way: OSError: the disk is full\."):
        tracking.log_result(RESULT, uri)
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(tracking.EXPERIMENT)
    assert [run.info.status for run in client.search_runs([experiment.experiment_id])] == ["FAILED"]
