"""Several runs side by side: in what they differ, and what each algorithm scored in each of them.

The rules are those of ``tables``. A pair is two runs' settings of the same case, algorithm and seed. It is a pair only
on the same rows (one SHA-256): on other rows a seed names other banks, and its difference would say nothing.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedjax_fraud.files import strict_json

from . import facts
from .intervals import mean_interval, with_bounds
from .tables import (
    HYPERPARAMETERS,
    SETTING_KEYS,
    complete,
    final_rounds,
    in_listed_order,
    summarise,
)

OTHER_ROWS, OTHER_SEEDS, UNKNOWN_ROWS = "other rows", "no seed in common", "rows unknown"
_UNTOLD = (
    *("timings", "work", "decisions", "diverged_loss_ratio", "diverged"),
    *("data.columns", "data.account_overlap", "data.silo_crossings", "data.one_rule", "data.filled"),
    *("data.unseen_categories", "data.suspected_leaks"),
)
_PREFIXES = tuple(f"{name}." for name in _UNTOLD)
_SHOWN = (
    *("num_seeds", "num_diverged", "num_idle", "average_precision", "average_precision_low", "average_precision_high"),
    *("mb_total", "seconds"),
)
_PAIR = ("difference", "difference_low", "difference_high", "num_pairs", "wins", "num_excluded", "num_unpaired")
COLUMNS = ("run", *SETTING_KEYS, *_SHOWN, "reference", *_PAIR, "not_paired")


def load_runs(folders: Sequence[str | os.PathLike]) -> dict[str, Any]:
    """Folder -> result, in order.

    Raises: ValueError for fewer than two folders, one given twice, or one that holds no complete, undamaged result.
    """
    from .store import load

    names = [os.fspath(folder) for folder in folders]
    if len(names) < 2:
        raise ValueError(f"A comparison needs at least two folders of results, got {names}. Name another.")
    places = [pathlib.Path(name).resolve() for name in names]
    twice = [name for place, name in zip(places, names, strict=True) if places.count(place) > 1]
    if twice:
        raise ValueError(f"{' and '.join(map(repr, twice))} are the same folder. Name each run once.")
    return {name: load(name) for name in names}


def compare(results: Mapping[str, Any] | Sequence[Any]) -> pd.DataFrame:
    """What each run scored, for every case and algorithm that two or more runs share.

    Hyperparameters of which every run has one value belong to the run, as what it was asked for (see
    ``differences``): settings meet though they differ in them. Others belong to the setting, and have to be equal.

    Args:
      results: run -> result (``rounds`` and ``manifest``), or a sequence of results, named 1, 2, ...

    Returns: one row per case, algorithm, hyperparameters and run, in the order of the runs: ``run``; the keys;
      ``num_seeds``, ``num_diverged``, ``num_idle``; ``average_precision`` with ``_low`` and ``_high``; ``mb_total``,
      ``seconds`` (simulated; NaN without a clock); and against the first of the runs that has the setting,
      ``reference``: ``difference`` (this run minus that one) with ``_low`` and ``_high``, over the seeds of both,
      ``num_pairs``, ``wins``, ``num_excluded`` (pairs in which a side diverged or has no score), ``num_unpaired``
      (seeds that one of them lacks), and ``not_paired``, the reason why there is no difference, else empty. The
      reference itself has no difference, and an empty ``reference``.

    Raises: ValueError for fewer than two results, or if the runs share nothing.
    """
    runs = _named(results)
    free = _of_the_run(runs)
    keys = [name for name in SETTING_KEYS if name not in free]
    summaries = pd.concat([summarise(run.rounds).assign(run=name) for name, run in runs.items()], ignore_index=True)
    finals = {name: final_rounds(run.rounds) for name, run in runs.items()}
    rows = []
    for key, group in summaries.groupby(keys, dropna=False, sort=False):
        if group["run"].nunique() < 2:
            continue
        wanted = dict(zip(keys, key, strict=True))
        sides = {name: _matching(finals[name], wanted) for name in group["run"]}
        reference = group["run"].iloc[0]
        for row in group.to_dict("records"):
            against = None if row["run"] == reference else reference
            rows.append(_row(row, runs, sides, against))
    if not rows:
        raise ValueError(
            f"{', '.join(map(repr, runs))} share no case of an algorithm: no alpha, conditions and algorithm are in "
            "two of them. Compare runs that have one in common."
        )
    order = {name: place for place, name in enumerate(runs)}
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    table = table.assign(_run=table["run"].map(order))
    by = [*(name for name in HYPERPARAMETERS if name in keys), "_run"]
    return in_listed_order(table, by).drop(columns="_run")


def differences(results: Mapping[str, Any] | Sequence[Any]) -> pd.DataFrame:
    """In what the runs differ: configuration, data, model, versions and devices, as their manifests have it.

    Args:
      results: as for ``compare``.

    Returns: one row per fact that is not the same in all runs: ``fact`` (``config.client_lr``, ``data.sha256``), and a
      column for each run with its value; None where a run does not say. Empty if they agree in everything.
    """
    runs = _named(results)
    told = {name: _facts(run.manifest) for name, run in runs.items()}
    every = dict.fromkeys(fact for known in told.values() for fact in known)
    rows = [
        {"fact": fact, **{name: known.get(fact) for name, known in told.items()}}
        for fact in every
        if len({_text(known.get(fact)) for known in told.values()}) > 1
    ]
    return pd.DataFrame(rows, columns=["fact", *runs], dtype=object)


def as_json(results: Mapping[str, Any] | Sequence[Any]) -> str:
    """``differences`` and ``compare`` as one strict JSON object: ``runs``, ``differences``, ``comparison``."""
    runs = _named(results)
    return strict_json(
        {
            "runs": list(runs),
            "differences": differences(runs).to_dict("records"),
            "comparison": compare(runs).to_dict("records"),
        }
    )


def _named(results: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Run -> result."""
    runs = results if isinstance(results, Mapping) else {str(i): run for i, run in enumerate(results, start=1)}
    if len(runs) < 2:
        raise ValueError(f"`results` must hold at least two runs, got {len(runs)}. Load another.")
    return dict(runs)


def _facts(manifest: Mapping) -> dict[str, Any]:
    """Path -> value, without times, what was counted, and what follows from the rows."""
    return {name: value for name, value in facts.flatten(manifest) if not f"{name}.".startswith(_PREFIXES)}


def _text(value: Any) -> str:
    """A fact, so that facts can be compared, however they are held."""
    return strict_json(value)


def _of_the_run(runs: Mapping[str, Any]) -> list[str]:
    """Hyperparameters of which no run has two values for one algorithm."""
    return [
        name
        for name in HYPERPARAMETERS
        if all(complete(run.rounds).groupby("algorithm")[name].nunique().max() <= 1 for run in runs.values())
    ]


def _matching(final: pd.DataFrame, wanted: Mapping[str, Any]) -> pd.DataFrame:
    """The settings with these keys; NaN is a value like any other."""
    for name, value in wanted.items():
        final = final[final[name].isna() if pd.isna(value) else final[name] == value]
    return final


def _row(summary: Mapping, runs: Mapping[str, Any], sides: Mapping[str, pd.DataFrame], against: str | None) -> dict:
    """One line of ``compare``."""
    row = {name: summary[name] for name in ("run", *SETTING_KEYS, *_SHOWN)}
    row |= dict.fromkeys(_PAIR[:3], np.nan) | dict.fromkeys(_PAIR[3:], 0)
    row |= {"reference": against or "", "not_paired": ""}
    if against is None:
        return row
    hashes = [facts.fact(runs[name].manifest, "data", "sha256") for name in (against, summary["run"])]
    if None in hashes or len(set(hashes)) > 1:
        return row | {"not_paired": UNKNOWN_ROWS if None in hashes else OTHER_ROWS}
    return row | _pairs(sides[summary["run"]], sides[against])


def _pairs(own: pd.DataFrame, other: pd.DataFrame) -> dict:
    """The paired difference of two runs' settings of one kind."""
    values = ["seed", "average_precision", "diverged", "idle"]
    both = own[values].merge(other[values], on="seed", suffixes=("", "_other"))
    lost = np.logical_or.reduce(
        [both[name].astype(bool) for name in ("diverged", "idle", "diverged_other", "idle_other")]
    )
    difference = both["average_precision"] - both["average_precision_other"]
    used = difference[~lost & np.isfinite(difference)]
    return with_bounds("difference", mean_interval(used)) | {
        "num_pairs": len(used),
        "wins": int((used > 0).sum()),
        "num_excluded": len(both) - len(used),
        "num_unpaired": len(own) + len(other) - 2 * len(both),
        "not_paired": "" if len(both) else OTHER_SEEDS,
    }
