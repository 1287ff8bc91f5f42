"""A finished sweep in MLflow: one run for the sweep, and below it one for each algorithm, case and hyperparameters.

MLflow is optional (extra ``mlflow``); nothing of it is imported before it is asked for, and no global state of it is
touched: everything goes through a client of the given address.
"""

import itertools
import math
import os
import pathlib
import re
import socket
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedjax_fraud.files import strict_json
from fedjax_fraud.report import facts
from fedjax_fraud.report.intervals import mean_interval
from fedjax_fraud.report.tables import (
    RANGES,
    SCORES,
    SETTING_KEYS,
    final_rounds,
    in_order,
    spread_conditions,
    summarise,
)
from fedjax_fraud.report.wording import case_name, setting_names

EXPERIMENT = "fedjax_fraud"
SERVER_SECONDS = 10.0
PARENT = "mlflow.parentRunId"
MAX_METRICS, MAX_PARAMS, MAX_TEXT = 1000, 100, 500  # of one call; characters of a value that every store takes
ARTIFACTS = (".md", ".html", ".png", ".svg", ".csv", ".json")
FINAL = ("num_seeds", "num_diverged", "num_idle", "num_used", "mb_down", "mb_up", "mb_total", "relative_mb", "drift")


def check_installed(uri: str) -> None:
    """Raises ValueError if MLflow is not there, or if ``uri`` names a database in a folder that is not."""
    try:
        import mlflow  # noqa: F401 (it is only looked for)
    except ImportError:
        raise ValueError(
            f"`mlflow` {uri!r} needs the package mlflow, which is not installed. Install the extra: "
            "pip install 'fedjax-fraud[mlflow]'."
        ) from None
    if uri.startswith("sqlite:///"):  # its driver would say no more than that it failed
        folder = pathlib.Path(uri.removeprefix("sqlite:///")).parent
        if not folder.is_dir():
            raise ValueError(f"`mlflow` {uri!r}: there is no folder {str(folder)!r}. Create it, or name another.")


def check_store(uri: str) -> Any:
    """Makes sure, before any training, that MLflow is there and its store answers. A local store is made if need be.

    Args:
      uri: a tracking URI: ``sqlite:///runs.db``, or a server's address.

    Returns: an ``MlflowClient``.

    Raises: ValueError if MLflow is not installed, or the store cannot be used.
    """
    check_installed(uri)
    _check_server(uri)
    import mlflow

    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        client.get_experiment_by_name(EXPERIMENT)
    except Exception as error:  # MLflow passes on what its stores raise, of any kind
        raise ValueError(f"`mlflow` {uri!r} cannot be used: {_first_line(error)} Check the address.") from None
    return client


def log_result(result: Any, uri: str, *, folder: str | os.PathLike | None = None, name: str | None = None) -> str:
    """Logs a result.

    The run of the sweep has its configuration as parameters, the data's hash and the versions as tags, and the files of
    its report as artifacts. Each run below it is one line of ``report.summarise``: metrics by round are means over
    seeds with ``_low`` and ``_high`` (95 % intervals), ``final_...`` are those after the last round. What diverged is
    left out and counted, as in every table. Values that are not finite are left out: stores differ in what they make
    of them.

    Args:
      result: has ``rounds`` and ``manifest``.
      uri: see ``check_store``.
      folder: what ``report.write`` wrote, for the artifacts.
      name: of the sweep's run; default the folder's name.

    Returns: the id of the sweep's run.

    Raises: ValueError if the store fails on the way; the sweep's run is then marked as failed.
    """
    client = check_store(uri)
    title = name or (pathlib.Path(folder).name if folder is not None else "sweep")
    try:
        experiment = _experiment(client)
        run = client.create_run(experiment, tags=_tags(result.manifest), run_name=title).info.run_id
    except Exception as error:
        raise ValueError(f"`mlflow` {uri!r} takes no run: {_first_line(error)}") from None
    status = "FAILED"
    try:
        _log_params(client, run, dict(facts.flatten(result.manifest.get("config", {}))))
        _log_metrics(client, run, _numbers(result.manifest))
        for child in children(result.rounds):
            _log_child(client, experiment, run, child)
        if folder is not None:
            for path in sorted(pathlib.Path(folder).iterdir()):
                if path.suffix in ARTIFACTS:
                    client.log_artifact(run, str(path))
        status = "FINISHED"
    except Exception as error:
        raise ValueError(f"`mlflow` {uri!r} failed on the way: {_first_line(error)}") from None
    finally:
        client.set_terminated(run, status)
    return run


# ---- what is logged ---------------------------------------------------------------------------------------------


class Child(NamedTuple):
    """One line of the summary, as a run.

    Attributes:
      name: of the algorithm and its case.
      params: its keys.
      final: metric -> value after the last round.
      rounds: metric -> round -> value.
    """

    name: str
    params: dict[str, Any]
    final: dict[str, float]
    rounds: dict[str, dict[int, float]]


def children(rounds: pd.DataFrame) -> Iterator[Child]:
    """What each run below the sweep's holds."""
    summary = summarise(rounds)
    usable = final_rounds(rounds)
    usable = usable[~usable["diverged"].astype(bool) & ~usable["idle"]]["setting"]
    by_round = spread_conditions(in_order(rounds))
    by_round = by_round[by_round["setting"].isin(usable)]
    for name, row in zip(setting_names(summary), summary.to_dict("records"), strict=True):
        own = by_round
        for key in SETTING_KEYS:
            own = own[own[key].isna() if _is_missing(row[key]) else own[key] == row[key]]
        case = case_name(row, summary)
        yield Child(
            name=f"{name}, alpha {case}",
            params={key: row[key] for key in SETTING_KEYS if not _is_missing(row[key])},
            final={f"final_{score}{end}": row[f"{score}{end}"] for score in SCORES for end in ("", "_low", "_high")}
            | {key: row[key] for key in (*FINAL, "seconds")},
            rounds=_by_round(own),
        )


def _by_round(own: pd.DataFrame) -> dict[str, dict[int, float]]:
    """Name -> round -> value: scores with their intervals, megabytes and simulated seconds so far."""
    found: dict[str, dict[int, float]] = {}
    for step, group in own.groupby("round"):
        for score in SCORES:
            interval = mean_interval(group[score], RANGES[score])
            for end, value in (("", interval.mean), ("_low", interval.low), ("_high", interval.high)):
                found.setdefault(f"{score}{end}", {})[int(step)] = value
        for column, metric in (("mb", "mb_so_far"), ("time", "seconds_so_far")):
            found.setdefault(metric, {})[int(step)] = mean_interval(group[column]).mean
    return found


def _tags(manifest: Mapping) -> dict[str, str]:
    """What the numbers rest on."""
    tags = {f"data.{key}": facts.fact(manifest, "data", key) for key in ("sha256", "source")}
    tags |= {f"versions.{key}": value for key, value in (manifest.get("versions") or {}).items()}
    tags["model"] = facts.fact(manifest, "model", "description")
    return {key: _text(value) for key, value in tags.items() if value is not None}


def _numbers(manifest: Mapping) -> dict[str, dict[int, float]]:
    """Numbers about the sweep as a whole."""
    chosen = {f"timings.{key}": value for key, value in (manifest.get("timings") or {}).items()}
    chosen |= {f"work.{key}": value for key, value in (manifest.get("work") or {}).items()}
    for side in ("train", "test"):
        for key in ("num_rows", "prevalence"):
            chosen[f"data.{side}.{key}"] = facts.number_fact(manifest, "data", side, key)
    return {key: {0: value} for key, value in chosen.items() if isinstance(value, int | float)}


# ---- how --------------------------------------------------------------------------------------------------------


def _experiment(client) -> str:
    """The id of the experiment, made if it is not there."""
    found = client.get_experiment_by_name(EXPERIMENT)
    return found.experiment_id if found is not None else client.create_experiment(EXPERIMENT)


def _log_child(client, experiment: str, parent: str, child: Child) -> None:
    run = client.create_run(experiment, tags={PARENT: parent}, run_name=child.name).info.run_id
    _log_params(client, run, child.params)
    _log_metrics(client, run, {name: {0: value} for name, value in child.final.items()} | child.rounds)
    client.set_terminated(run)


def _log_params(client, run: str, params: Mapping[str, Any]) -> None:
    from mlflow.entities import Param

    for some in _batches([Param(_key(name), _text(value)) for name, value in params.items()], MAX_PARAMS):
        client.log_batch(run, params=some)


def _log_metrics(client, run: str, metrics: Mapping[str, Mapping[int, float]]) -> None:
    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    every = [
        Metric(_key(name), float(value), now, step)
        for name, values in metrics.items()
        for step, value in values.items()
        if np.isfinite(value)
    ]
    for some in _batches(every, MAX_METRICS):
        client.log_batch(run, metrics=some)


def _batches(items: Sequence, size: int) -> Iterator[list]:
    """As many items at a time as one call takes."""
    items = iter(items)
    while some := list(itertools.islice(items, size)):
        yield some


def _key(name: str) -> str:
    """A name that every store takes."""
    return re.sub(r"[^\w\-. /]", "_", name)


def _text(value: Any) -> str:
    """A value as text that every store takes; what is too long is cut, and says so."""
    text = value if isinstance(value, str) else " ".join(strict_json(value).split())
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 12]} ... (cut)"


def _is_missing(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _check_server(uri: str) -> None:
    """Raises ValueError if nobody listens at a server's address: MLflow would try again for minutes."""
    address = urllib.parse.urlsplit(uri)
    if address.scheme not in ("http", "https") or not address.hostname:
        return
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname, port), timeout=SERVER_SECONDS).close()
    except OSError as error:
        raise ValueError(
            f"`mlflow` {uri!r} cannot be reached: {_first_line(error)} Start the server, or check the address."
        ) from None


def _first_line(error: Exception) -> str:
    """What an error says, on one line with a full stop."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0].rstrip('.') if text else 'no message'}."
