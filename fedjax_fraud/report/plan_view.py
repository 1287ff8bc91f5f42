"""A plan (``sweep(..., dry_run=True)``) as lines for a terminal."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.table import Table

from fedjax_fraud.progress import clock

from .console import add_row, empty_table, partition_lines, print_partitions, print_table, table_lines
from .tables import BASELINES, in_listed_order
from .wording import algorithm_name, alpha_name, case_name, plural

_HEADERS = ("case", "algorithm", "settings", "seeds", "local steps", "rows trained", "MB sent")


def print_plan(plan: Any) -> None:
    """Prints what would run, the banks of the first seed, and what it is estimated to take.

    Args:
      plan: a ``fedjax_fraud.plan.Plan``.
    """
    print_table(settings_of_plan(plan.settings))
    print_partitions(plan.partitions)
    for line in _facts(plan):
        print(line)


def plan_lines(plan: Any) -> list[str]:
    """The lines of the plan without colour; of the banks the means alone."""
    return [*table_lines(settings_of_plan(plan.settings)), *partition_lines(plan.partitions), *_facts(plan)]


def settings_of_plan(settings: pd.DataFrame) -> Table:
    """A row per algorithm and case, with its work and traffic in all rounds."""
    table = empty_table("What would run: work and traffic of all rounds", _HEADERS)
    federated = settings[~settings["algorithm"].isin(BASELINES)]
    last = None
    for row in in_listed_order(settings).to_dict("records"):
        case = _case(row, federated)
        counts = [f"{row[name]:,}" for name in ("num_settings", "num_seeds", "steps", "rows")]
        sent = f"{row['bytes'] / 1e6:,.2f}" if row["bytes"] else "-"
        add_row(table, case if case != last else "", algorithm_name(row["algorithm"]), *counts, sent)
        last = case
    return table


def _case(row: Mapping, federated: pd.DataFrame) -> str:
    """Alpha and conditions; baselines know no conditions, and a centralised run no alpha."""
    if row["algorithm"] not in BASELINES:
        return case_name(row, federated)
    return "any" if row["algorithm"] == "centralised" else alpha_name(row["alpha"])


def _facts(plan: Any) -> list[str]:
    """Sums and estimates."""
    total, guess = plan.settings, plan.estimate
    num_baselines = int(total["num_settings"].sum()) - plan.num_federations
    more = f" and {plural(num_baselines, 'baseline')}" if num_baselines else ""
    after = guess.run_seconds + guess.table_seconds
    return [
        f"{plural(plan.num_federations, 'federation')}{more}, {plural(plan.num_clients, 'bank')}, "
        f"{plural(plan.num_rounds, 'round')}; {plural(plan.num_programs, 'program')} to compile.",
        f"{total['steps'].sum():,} local steps, {total['rows'].sum():,} rows trained, "
        f"{total['bytes'].sum() / 1e6:,.2f} MB sent ({_how_exact(plan)}).",
        f"Estimated time: {clock(after + guess.compile_seconds)} on a first start, "
        f"{clock(after + guess.kept_seconds)} with programs kept from an earlier one "
        f"(rounds {clock(guess.run_seconds)}, then scores {clock(guess.table_seconds)}); the report comes on top.",
        f"Estimated peak memory: {guess.peak_bytes / 2**30:.1f} GiB.",
    ]


def _how_exact(plan: Any) -> str:
    """Whether all seeds were drawn for the counts."""
    if plan.num_dealt == plan.num_seeds:
        return "all exact"
    return f"estimates, from the first {plan.num_dealt:,} of {plan.num_seeds:,} seeds"
