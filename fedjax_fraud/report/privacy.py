"""The privacy section: which epsilon each noise gives the banks' rows."""

import pandas as pd

from . import facts
from .case import Case
from .tables import BASELINES, CASE, complete, in_listed_order
from .wording import case_name, markdown_table, quantity


def epsilon_table(banks: pd.DataFrame) -> pd.DataFrame:
    """One row for each case with noise: what a row of a bank's data costs, over banks and seeds.

    Args:
      banks: one row per setting and client, with ``epsilon``.

    Returns: the columns of ``CASE``, ``least`` and ``most`` (smallest and largest epsilon of any bank with rows), and
      ``largest_bank`` (mean epsilon, over seeds, of the bank with most rows).
    """
    banks = complete(banks)
    noisy = banks[~banks["algorithm"].isin(BASELINES) & (banks["noise_multiplier"] > 0) & (banks["num_train"] > 0)]
    largest = noisy.loc[noisy.groupby("setting")["num_train"].idxmax()]
    keys = list(CASE)
    spent = noisy.groupby(keys, dropna=False)["epsilon"].agg(least="min", most="max")
    spent["largest_bank"] = largest.groupby(keys, dropna=False)["epsilon"].mean()
    return in_listed_order(spent.reset_index().assign(algorithm="fedavg")).drop(columns="algorithm")


def privacy_section(case: Case) -> str:
    """The dossier's section on privacy; empty if no setting had noise."""
    if "epsilon" not in case.banks:
        return ""
    delta = facts.number_fact(case.manifest, "privacy", "delta")
    rows = [
        [
            *(case_name(row, case.summary), quantity(row["noise_multiplier"]), quantity(row["clip_norm"])),
            *(quantity(row[name]) for name in ("least", "most", "largest_bank")),
        ]
        for row in epsilon_table(case.banks).to_dict("records")
    ]
    headers = ("alpha", "Noise", "Clipping norm", "Least epsilon", "Most", "Epsilon of the largest bank")
    return (
        "## Privacy\n\n"
        "Local gradients are those of DP-SGD: each row is in a batch by its own coin, its gradient is clipped, the sum "
        f"is noised. **At delta {quantity(delta)}, epsilon bounds what anybody who sees all messages and the final "
        "model learns of one training row of one bank.** It is over all rounds, for a bank that did all its work in "
        "each. A bank with few rows draws each of them more often, so its epsilon is larger: that is *Most*. Public: "
        "the banks' numbers of rows, and how features were scaled; not counted: what choosing among many settings "
        "gives away. *Centralised* and *Local only* are not private.\n\n" + markdown_table(headers, rows)
    )
