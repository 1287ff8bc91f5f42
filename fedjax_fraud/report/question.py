"""The question: what was compared, on which banks, for how long."""

import math
from collections.abc import Collection, Mapping

import pandas as pd

from . import facts, tables
from .case import Case
from .wording import algorithm_name, alpha_name, distinct, listed, plural, readable, shown

_BASELINE_WORDS = {"centralised": "one model on all rows", "local_only": "each bank's own model"}


def asked(case: Case) -> str:
    """The configuration in a sentence."""
    rounds, config = case.rounds, case.manifest.get("config") or {}
    federated = rounds[~rounds["algorithm"].isin(tables.BASELINES)]
    compared = listed([algorithm_name(name) for name in _order(case.summary, federated["algorithm"])])
    baselines = _order(case.summary, set(tables.BASELINES))
    beside = f", beside {listed([_BASELINE_WORDS[name] for name in baselines])}" if baselines else ""
    alphas = rounds["alpha"].dropna().unique()
    skew = f" at alpha {listed([alpha_name(alpha) for alpha in sorted(alphas)])}" if 0 < len(alphas) <= 12 else ""
    return (
        f"How do {compared} compare on {plural(case.partitions['client'].nunique(), 'bank')}{beside}? "
        f"Partition: {_partition_words(config)}{skew}; {plural(int(rounds['round'].max()), 'round')} of "
        f"{distinct(rounds['num_epochs'])} local epoch(s), {plural(rounds['seed'].nunique(), 'seed')}; "
        f"{_condition_words(rounds, config)}."
    )


def _order(summary: pd.DataFrame, names: Collection[str]) -> list[str]:
    """Those of some algorithms that were run, in the order of every table."""
    return [name for name in dict.fromkeys(summary["algorithm"]) if name in set(names)]


def question(case: Case) -> str:
    """The configuration in words."""
    rounds, config = case.rounds, case.manifest.get("config") or {}
    federated = rounds[~rounds["algorithm"].isin(tables.BASELINES)]
    names = [algorithm_name(name) for name in dict.fromkeys(case.summary["algorithm"])]
    lines = [
        f"Compared: {listed(names)}.",
        f"Skew: {_partition_words(config)}; alpha {distinct(rounds['alpha'])}.",
        f"Banks: {case.partitions['client'].nunique()}. Communication rounds: {rounds['round'].max()}. "
        f"Seeds: {rounds['seed'].nunique()} ({distinct(rounds['seed'])}).",
        f"Local work: {distinct(rounds['num_epochs'])} epoch(s) a round; client learning rate "
        f"{distinct(rounds['client_lr'])}; mu {distinct(rounds['mu'])}; "
        f"{_from_config(config, 'batch_size')}.",
        f"Conditions: {_condition_words(rounds, config)}.",
        f"Model: {_model_words(case.manifest)}.",
        f"Federated settings run: {federated['setting'].nunique():,}, each {rounds['round'].max()} rounds.",
    ]
    return f"## What was asked\n\n{asked(case)}\n\n" + "\n".join(f"- {line}" for line in lines)


def _condition_words(rounds: pd.DataFrame, config: Mapping) -> str:
    """What could go wrong: every condition that is not the ideal one in some setting, with its values."""
    known = tables.complete(rounds[~rounds["algorithm"].isin(tables.BASELINES)])
    words = []
    for name, ideal in tables.CONDITIONS.items():
        values = list(dict.fromkeys(known[name]))
        if values != [ideal]:
            words.append(f"{readable(name)} {', '.join(shown(value) for value in values)}")
    if config.get("available"):
        words.append("banks that can be reached: by a table of rounds and banks")
    return "; ".join(words) or "all banks take part in every round, in time and without faults"


def _partition_words(config: Mapping) -> str:
    """The kind of partition in words."""
    kinds = {
        "labels": "Dirichlet over the labels (each class is dealt to the banks apart)",
        "feature": f"Dirichlet over the bins of a feature ({config.get('partition_feature')})",
        "quantity": "Dirichlet over the number of rows",
        "iid": "rows dealt at random (IID)",
        "natural": "the banks that the data name",
        "controlled": "banks of given sizes and fraud rates",
    }
    kind = str(config.get("partition_kind", config.get("partition", "as recorded below")))
    return kinds.get(kind, kind)


def _from_config(config: Mapping, name: str) -> str:
    """An entry of the configuration in words."""
    return f"{readable(name)} {config.get(name, 'not recorded')}"


def _model_words(manifest: Mapping) -> str:
    """The model and its size."""
    model = manifest.get("model") or {}
    size = facts.number_fact(manifest, "model", "num_params")
    words = [str(model["description"])] if model.get("description") else []
    words += [f"{size:,.0f} parameters"] if math.isfinite(size) else []
    return ", ".join(words) or "not recorded"
