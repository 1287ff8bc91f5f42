"""What becomes of faulty updates: injected, rejected, silent, and whether the model survives.

    python -m benchmarks.fault_matrix            # 1,080 federations, half a minute; writes results/fault_matrix.md
    python -m benchmarks.fault_matrix --quick    # a few, to the screen alone

Every kind of fault meets FedAvg, FedProx and SCAFFOLD at three rates, with and without drop-outs, with all banks and
with half of them, on rows that the built-in generator makes.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import workload

KINDS = ("nan", "inf", "huge", "stale", "duplicate")


def run(num_seeds: int, rates: list[float]) -> pd.DataFrame:
    """The rounds of all federations."""
    import fedjax_fraud as ff

    train, test = ff.data.split(ff.data.paysim_like(5_000, seed=0))
    return ff.sweep(
        train,
        test,
        alphas=[0.5],
        seeds=num_seeds,
        num_clients=6,
        num_rounds=8,
        fault=list(KINDS),
        fault_rate=rates,
        participation=[0.5, 1.0],
        drop_after=[0.0, 0.3],
        model=ff.models.logistic_regression(train.features.shape[1]),
        baselines=False,
    ).rounds


def matrix(rounds: pd.DataFrame) -> pd.DataFrame:
    """One row for each fault and algorithm."""
    rows = []
    for (fault, algorithm), group in rounds.groupby(["fault", "algorithm"], sort=False):
        ends = group[group["round"] == group["round"].max()]
        rows.append(
            {
                "fault": fault,
                "algorithm": algorithm,
                "plans": group["setting"].nunique(),
                "updates": int(group["num_participants"].sum()),
                "injected": int(group["num_faulty"].sum()),
                "rejected": int(group["num_rejected"].sum()),
                "silent": int(group["num_silent"].sum()),
                "survived": int(np.isfinite(ends["log_loss"]).sum()),
                "diverged": int(ends["diverged"].sum()),
                "skipped rounds": int(group["skipped"].sum()),
                "largest error of c": group["state_error"].max(),
            }
        )
    return pd.DataFrame(rows)


def page(table: pd.DataFrame) -> str:
    """The matrix as Markdown."""
    rows = [[_shown(value) for value in row] for row in table.itertuples(index=False)]
    total = table[["plans", "injected", "rejected", "silent", "survived"]].sum()
    return (
        "# Faulty updates\n\n"
        "Written by `python -m benchmarks.fault_matrix`. Updates that came back, how many of them were faulty "
        "(injected) and how many the server rejected; *silent*: faulty ones in the mean; *survived*: federations whose "
        "final model is finite. Of a duplicate the second copy is rejected and the first counts. The last column is "
        "the distance of c from the mean of all c_k, relative to the largest c_k.\n\n"
        f"{workload.machine_line(workload.machine())}\n\n"
        f"{workload.markdown_table(list(table.columns), rows)}\n\n"
        f"In all: {total.plans} fault plans, {total.injected} faulty updates, {total.rejected} rejected, "
        f"{total.silent} silent; {total.survived} of {total.plans} survived.\n"
    )


def _shown(value) -> str:
    """A cell."""
    if isinstance(value, float):
        return "-" if np.isnan(value) else f"{value:.1e}"
    return str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few federations, nothing written")
    options = parser.parse_args()
    text = page(matrix(run(1, [0.5]) if options.quick else run(6, [0.1, 0.5, 1.0])))
    print(text)
    if not options.quick:
        Path(workload.RESULTS, "fault_matrix.md").write_text(text)


if __name__ == "__main__":
    main()
