"""The page's charts: the rows that they show, and how they can be drawn and told in a table.

Every number comes from ``tables`` and ``decisions``. A specification knows no selection: the page's script hands it the
rows of the chosen alpha, conditions and algorithms.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from altair.utils.schemapi import debug_mode

from . import decisions, specs, styles, tables, wording
from .case import Case, bank_names
from .dossier import MOST_BANKS

_AXES = {"round": "Round", "mb": "MB", "time": "Simulated time"}
_MEASURES = {"recall": "Recall", "precision": "Precision", "value_recall": "Share of the defrauded money"}
_MOST_POINTS, _FEWEST_POINTS, _MOST_ROWS = 40, 8, 2500  # of a curve; of all curves together
_MOST_BANKS, _MOST_SEEDS = 30, 20  # of the heat map


class Column(NamedTuple):
    """A column of the table of a chart's numbers: of text, of numbers with so many digits, or with an interval."""

    field: str
    label: str
    digits: int | None = None
    interval: bool = False
    sign: bool = False


class Variant(NamedTuple):
    """One way to draw a chart: the specification without its rows, and the columns of the table beside it."""

    spec: dict
    columns: tuple[Column, ...]


class Option(NamedTuple):
    """A control of one chart: its name, its label, and what can be chosen, value -> label."""

    name: str
    label: str
    values: dict[str, str]


class Chart(NamedTuple):
    """A chart of the page, a panel for each alpha.

    Attributes:
      name: tells charts apart.
      title, note: above and below it.
      rows: tables under the names that the specifications use. Of columns ``alpha``, ``conditions`` and ``algorithm``
        the script shows what is chosen.
      variants: the ways to draw it, by the values of ``choices`` with spaces between.
      choices: the names of the controls that choose the variant.
      alphas: the panels.
      options: its own controls.
      legend: the algorithms of its legend.
      lines: whether the legend shows lines, or markers alone.
    """

    name: str
    title: str
    note: str
    rows: dict[str, pd.DataFrame]
    variants: dict[str, Variant]
    choices: tuple[str, ...]
    alphas: tuple[str, ...]
    options: tuple[Option, ...] = ()
    legend: tuple[str, ...] = ()
    lines: bool = False


class View(NamedTuple):
    """What all charts share: the result, its names, and how algorithms look."""

    case: Case
    best: pd.DataFrame  # summary of each algorithm's best hyperparameters, keyed
    looks: specs.Looks
    names: dict[str, str]
    alphas: tuple[str, ...]
    conditions: tuple[str, ...]


def view_of(case: Case) -> View:
    """The names and looks of a result's algorithms, and what can be chosen."""
    best = case.best_summary
    looks = styles.line_styles(best)
    looks |= {name: look for name, look in styles.BASELINE_STYLES.items() if name in set(best["algorithm"])}
    looks["prevalence"] = styles.PREVALENCE_STYLE
    chosen = tables.num_choices(case.rounds)
    names = {
        name: f"{text}, best of {chosen[name]}" if chosen[name] > 1 else text
        for name, text in zip(best["algorithm"], wording.setting_names(best), strict=True)
    }
    names |= {name: text for name, text in styles.BASELINE_NAMES.items() if name in names}
    names["prevalence"] = "Prevalence (random ranking)"
    view = View(case, best, looks, names, (), ())
    keyed = _keyed(view, best)
    return view._replace(best=keyed, alphas=_distinct(keyed["alpha"]), conditions=_distinct(keyed["conditions"]))


def charts(view: View) -> dict[str, Chart]:
    """The charts that a result has something to show in, by name."""
    with debug_mode(False):  # the tests check the specifications against Vega-Lite's schema, which takes seconds
        made = [_curves(view), _joining(view), _partitions(view), _drift(view), _differences(view)]
        made += [_budgets(view), _calibration(view), _conditions(view)]
    return {chart.name: chart for chart in made if chart is not None}


# ---- charts -----------------------------------------------------------------------------------------------------


def _curves(view: View) -> Chart | None:
    """Scores by round, traffic and simulated time, baselines and prevalence as levels."""
    table = _keyed(view, _thinned(tables.curves(view.case.best)))
    if table.empty:
        return None
    levels = _levels(view)
    axes = [axis for axis in _AXES if table[axis].notna().all()]
    variants = {
        f"{score} {axis}": Variant(specs.curves(view.looks, table, levels, score, axis), _curve_columns(score, axes))
        for score in specs.SCORES
        for axis in axes
    }
    return Chart(
        "curves",
        "Score of the global model on the pooled test rows",
        "Line: mean over seeds that did not diverge; band: its 95 % t interval, cut where it leaves the frame. "
        "Horizontal lines: baselines after their training, and the prevalence, which is what a random ranking scores.",
        {"rows": table, "levels": levels},
        variants,
        ("score", "axis"),
        view.alphas,
        (Option("axis", "Horizontal axis", {axis: _AXES[axis] for axis in axes}),),
        tuple(view.looks),
        lines=True,
    )


def _joining(view: View) -> Chart | None:
    """Average precision at each bank: its own model, the federated ones, all rows in one place."""
    case = view.case
    table = case.by_rank
    if table.empty:
        return None
    order = decisions.joining_order(table)
    names = bank_names(case)
    table = _keyed(view, table[table["bank_rank"] <= MOST_BANKS])
    table["category"] = [names.get(rank, f"bank {rank}") for rank in table["bank_rank"]]
    title = "average precision on the bank's own test rows"
    spec = specs.dots(view.looks, table, "average_precision", title, order, ticks="prevalence")
    columns = (Column("alpha", "alpha"), Column("category", "Bank"), Column("name", "Algorithm"))
    columns += (Column("average_precision", "PR-AUC", 4, True), Column("prevalence", "Prevalence", 4))
    return Chart(
        "joining",
        "Average precision on each bank's own test rows",
        "Bank 1 is the largest of its federation in each seed. Point: mean over the seeds in which the bank's test "
        "rows have both classes, none if there is no such seed; bar: 95 % t interval, cut where it leaves the frame. "
        "Grey tick: prevalence of the bank's test rows, which is what a random ranking scores there.",
        {"rows": table},
        {"": Variant(spec, columns)},
        (),
        view.alphas,
        legend=tuple(order),
    )


def _partitions(view: View) -> Chart | None:
    """Who holds the rows and the frauds: banks by rank of size and seeds."""
    table = view.case.partitions
    if table.empty:
        return None
    table = table.sort_values(["alpha", "seed", "num_examples", "client"], ascending=[True, True, False, True])
    rank = table.groupby(["alpha", "seed"], dropna=False).cumcount() + 1
    named = "bank" in table
    table = table.assign(rank=rank, bank=table["bank"] if named else rank.astype(str), alpha=_alpha_names(table))
    seeds = sorted(table["seed"].unique())[: 1 if named else _MOST_SEEDS]
    table = table[(table["rank"] <= _MOST_BANKS) & table["seed"].isin(seeds)]
    columns = (Column("alpha", "alpha"), Column("seed", "Seed", 0), Column("bank", "Bank"))
    columns += (Column("num_examples", "Training rows", 0), Column("num_positives", "Frauds", 0))
    columns += (Column("kl", "KL [nats]", 4),)
    return Chart(
        "partitions",
        "Who holds the training rows and the frauds",
        f"Darker is more. {_same_words() if named else _drawn_words(view)} A cross marks a bank without fraud. "
        "KL: how far the bank's share of frauds is from that of all rows.",
        {"rows": table[["alpha", "seed", "bank", "num_examples", "num_positives", "kl"]]},
        {name: Variant(specs.heat_map(table, name, named), columns) for name in specs.HOLDINGS},
        ("holding",),
        _distinct(table["alpha"]),
        (Option("holding", "Shade", specs.HOLDINGS),),
    )


def _same_words() -> str:
    """What the one line of the heat map is, where banks have names."""
    return "The banks are the same in every seed."


def _drawn_words(view: View) -> str:
    """What the lines of the heat map are, and what is left out of it."""
    partitions = view.case.partitions
    words = "A line is a draw: in each seed another bank may be the largest."
    left_out = [
        wording.plural(partitions[name].nunique() - most, noun)
        for name, noun, most in (("seed", "seed", _MOST_SEEDS), ("client", "smaller bank", _MOST_BANKS))
        if partitions[name].nunique() > most
    ]
    return f"{words} Not shown: {' and '.join(left_out)}." if left_out else words


def _drift(view: View) -> Chart | None:
    """Drift by round."""
    table = _keyed(view, _thinned(tables.curves(view.case.best)))
    table = table[table["drift"].notna()]
    if table.empty:
        return None
    columns = (Column("alpha", "alpha"), Column("name", "Algorithm"), Column("round", "Round", 0))
    columns += (Column("drift", "Drift", 4, True),)
    return Chart(
        "drift",
        "How far the banks' updates are from their mean",
        "Norm of a bank's update minus the aggregated update: mean over the cohort, then over seeds that did not "
        "diverge; band: 95 % t interval.",
        {"rows": table},
        {"": Variant(specs.drift(view.looks, table), columns)},
        (),
        view.alphas,
        legend=tuple(name for name in view.looks if name in set(table["algorithm"])),
        lines=True,
    )


def _differences(view: View) -> Chart | None:
    """Paired differences to FedAvg, of every choice of hyperparameters."""
    case = view.case
    found = case.differences
    first = next(iter(found.values()))
    if first.empty:
        return None
    table = _keyed(view, first)
    table["name"] = table["category"] = wording.setting_names(first, among=case.summary)
    for metric, other in found.items():
        for end in ("", "_low", "_high"):
            table[f"{metric}{end}"] = other[f"difference{end}"]
    variants = {
        metric: Variant(
            specs.differences(view.looks, table, metric),
            (
                *(Column("alpha", "alpha"), Column("name", "Algorithm")),
                *(
                    Column(metric, f"{specs.SCORES[metric]} minus FedAvg", 4, True, True),
                    Column("num_pairs", "Pairs", 0),
                ),
            ),
        )
        for metric in specs.SCORES
    }
    return Chart(
        "differences",
        "Difference to FedAvg on the same data, seed, learning rate and epochs",
        "Point: mean over pairs; bar: 95 % t interval, cut where it leaves the frame. An interval that holds 0 does "
        "not tell the two apart. Average precision and ROC-AUC: right of 0 is better; log loss: left of 0 is better.",
        {"rows": table},
        variants,
        ("score",),
        view.alphas,
    )


def _budgets(view: View) -> Chart | None:
    """Recall, precision and money at the alert budgets."""
    decided = view.case.decided
    if decided is None or decided.table.empty:
        return None
    table = _best_only(view, decided.table)
    budgets = decisions.budgets_of(table)
    measures = {name: label for name, label in _MEASURES.items() if f"{name}_{budgets[0]}" in table}
    parts = []
    for budget in budgets:
        columns = {f"{m}_{budget}{end}": f"{m}{end}" for m in measures for end in ("", "_low", "_high")}
        words = decisions.budget_words(budget, view.case.manifest).replace(" (", "\n(")
        part = table[["alpha", "conditions", "algorithm", "name", *columns]].rename(columns=columns)
        parts.append(part.assign(category=words))
    rows = pd.concat(parts, ignore_index=True)
    order = [name for name in view.looks if name in set(rows["algorithm"])]
    shared = (Column("alpha", "alpha"), Column("category", "Alert budget"), Column("name", "Algorithm"))
    variants = {
        name: Variant(
            specs.dots(view.looks, rows, name, label.lower(), order),
            (*shared, Column(name, label, 4, True)),
        )
        for name, label in measures.items()
    }
    return Chart(
        "budgets",
        "What the alerts catch at a given budget",
        "All test rows, the highest scores flagged until the budget is used up. Point: mean over seeds; bar: 95 % t "
        "interval, cut where it leaves the frame.",
        {"rows": rows},
        variants,
        ("measure",),
        view.alphas,
        (Option("measure", "Measure", measures),),
        tuple(order),
    )


def _calibration(view: View) -> Chart | None:
    """Observed against predicted fraud rates."""
    decided = view.case.decided
    if decided is None or decided.reliability.empty:
        return None
    table = _best_only(view, decided.reliability)
    rows = table[table["probability"] > 0]
    if rows.empty:
        return None
    columns = (Column("alpha", "alpha"), Column("name", "Algorithm"), Column("bin", "Bin", 0))
    columns += (Column("probability", "Predicted", 6), Column("rate", "Observed", 6, True))
    order = tuple(name for name in view.looks if name in set(rows["algorithm"]))
    return Chart(
        "calibration",
        "Observed fraud rate against predicted probability",
        "Ten bins of equal mass; point: mean over seeds, bar: 95 % t interval of the rate. On the grey line the "
        "probability is right. Logarithmic axes; bins without fraud stand at 0.",
        {"rows": rows},
        {"": Variant(specs.calibration(view.looks, rows), columns)},
        (),
        view.alphas,
        legend=order,
        lines=True,
    )


def _conditions(view: View) -> Chart | None:
    """The final score under every combination of conditions."""
    if len(view.conditions) < 2:
        return None
    table = view.best[~view.best["algorithm"].isin(tables.BASELINES)]
    table = table.assign(category=table["conditions"].str.replace(", ", ",\n")).drop(columns="conditions")
    order = [name for name in view.looks if name in set(table["algorithm"])]
    shared = (Column("alpha", "alpha"), Column("category", "Conditions"), Column("name", "Algorithm"))
    shared_after = (Column("num_used", "Seeds", 0), Column("num_diverged", "Diverged", 0))
    variants = {}
    for score, label in specs.SCORES.items():
        level = view.case.prevalence if score == "average_precision" else np.nan
        spec = specs.dots(view.looks, table, score, label, order, specs.BOUNDS[score], level=level)
        variants[score] = Variant(spec, (*shared, Column(score, label, 4, True), *shared_after))
    return Chart(
        "conditions",
        "Score after the last round under each condition",
        "Point: mean over seeds that did not diverge; bar: 95 % t interval, cut where it leaves the frame. Dash-dot "
        "line, of the average precision: prevalence.",
        {"rows": table},
        variants,
        ("score",),
        view.alphas,
        legend=tuple(order),
    )


def _curve_columns(score: str, axes: Collection[str]) -> tuple[Column, ...]:
    """The table beside the curves."""
    costs = {"round": Column("round", "Round", 0), "mb": Column("mb", "MB", 4), "time": Column("time", "Time [s]", 3)}
    first = (Column("alpha", "alpha"), Column("name", "Algorithm"))
    return (*first, *(costs[axis] for axis in axes), Column(score, specs.SCORES[score], 4, True))


# ---- rows -------------------------------------------------------------------------------------------------------


def _keyed(view: View, table: pd.DataFrame) -> pd.DataFrame:
    """A table whose ``alpha`` is text, with ``conditions`` and ``name``, as the page's controls call them."""
    if table.empty:
        return table
    known = table[list(tables.CONDITIONS)].drop_duplicates().to_dict("records")
    words = {tuple(row.values()): wording.conditions_name(row, view.case.summary) for row in known}
    keys = zip(*(table[name] for name in tables.CONDITIONS), strict=True)
    return table.assign(
        alpha=_alpha_names(table),
        conditions=[words[key] for key in keys],
        name=table["algorithm"].map(view.names),
    )


def _alpha_names(table: pd.DataFrame) -> list[str]:
    """The alphas as text."""
    return [wording.alpha_name(alpha) for alpha in table["alpha"]]


def _levels(view: View) -> pd.DataFrame:
    """The baselines' scores and the prevalence, for each alpha and condition."""
    ends = [f"{score}{end}" for score in specs.SCORES for end in ("", "_low", "_high")]
    keys = ["alpha", "conditions", "algorithm", "name"]
    baselines = view.best[view.best["algorithm"].isin(tables.BASELINES)][[*keys, *ends]]
    cases = view.best[["alpha", "conditions"]].drop_duplicates()
    random = cases.assign(
        algorithm="prevalence",
        name=view.names["prevalence"],
        average_precision=view.case.prevalence,
        roc_auc=0.5,
    )
    parts = [part for part in (baselines, random) if len(part)]
    return pd.concat(parts, ignore_index=True).reindex(columns=[*keys, *ends])


def _best_only(view: View, table: pd.DataFrame) -> pd.DataFrame:
    """Of a table of all settings those with each algorithm's best hyperparameters, keyed, in the usual order."""
    best = view.case.best_summary[list(tables.SETTING_KEYS)]
    return _keyed(view, best.merge(table, on=list(tables.SETTING_KEYS), how="inner"))


def _thinned(table: pd.DataFrame) -> pd.DataFrame:
    """Curves with so few of their rounds that the page stays small; the first and the last are kept."""
    rounds = np.sort(table["round"].unique())
    num_curves = max(1, len(table) // max(1, len(rounds)))
    most = int(np.clip(_MOST_ROWS // num_curves, _FEWEST_POINTS, _MOST_POINTS))
    if len(rounds) <= most:
        return table
    kept = rounds[np.unique(np.linspace(0, len(rounds) - 1, most).round().astype(int))]
    return table[table["round"].isin(kept)].reset_index(drop=True)


def _distinct(column: pd.Series) -> tuple[str, ...]:
    """The values of a column in their order."""
    return tuple(dict.fromkeys(column))


def columns_of(chart: Chart) -> Iterator[str]:
    """The columns that a chart's specifications, tables and controls use."""
    yield from ("alpha", "conditions", "algorithm", "name")
    for variant in chart.variants.values():
        for column in variant.columns:
            yield from (column.field, *(f"{column.field}{end}" for end in ("_low", "_high") if column.interval))
