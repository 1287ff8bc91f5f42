"""What `run_fl_benchmark.py` measured, as a page and a picture. Runs nothing:

python -m benchmarks.fl_report benchmarks/results/fl_benchmark.json            # both again from the record
"""

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.fl_results import Record, digits, imports, other, quotients, rounds, warm_up, whole
from benchmarks.peers import work

TITLES = dict(
    sweep27="{} federations: 3 algorithms x 3 skews x {} seeds, 10 clients each",
    sweep270="{} federations: 3 algorithms x 3 skews x {} seeds, 10 clients each",
    skewed9="{} federations at alpha 0.1 (FedAvg), 10 clients each",
)
# Okabe and Ito's colours, which colour-blind readers tell apart.
PHASES = {
    "start, imports, data, tables": "#999999",
    "compile or warm up": "#E69F00",
    "rounds, scored": "#0072B2",
}


def table(header: Sequence[str], rows: Sequence[Sequence[str]], num_left: int = 1) -> str:
    """A Markdown table, the first columns to the left."""
    rule = ["---"] * num_left + ["---:"] * (len(header) - num_left)
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *rows))


def ratio_table(record: Record) -> str:
    """Contender over ours."""
    lines = []
    for ratio, theirs, ours, quotient in quotients(record):
        contender = f"{ratio.contender} (extrapolated)" if ratio.extrapolate else ratio.contender
        lines.append([ratio.our_case, ratio.what, contender, ratio.ours, str(theirs), str(ours), f"**{quotient}**"])
    header = ["case", "seconds of", "contender", "against", "contender, s", "ours, s", "ratio"]
    return table(header, lines, num_left=4)


def time_table(record: Record, cases: Sequence[str], scores: bool) -> str:
    """All figures of all contenders; ``scores``: also the final scores, for cases of one setting."""
    header = ["case", "contender", "whole process, s", "import, s", "compile or warm up, s", "rounds alone, s"]
    header += ["million rows / s", "share of the floor", "peak, MiB"]
    header += ["log loss", "AP", "ROC-AUC"] if scores else []
    lines = []
    for case in cases:
        for contender in record.contenders(case):
            run = record.first(case, contender)
            rate = record.spread(case, contender, lambda run: run["rows_trained"] / rounds(run) / 1e6)
            floor = record.floor_seconds(run)
            share = (
                record.spread(case, contender, lambda run, floor=floor: 100 * floor / rounds(run)) if floor else None
            )
            line = [case, contender, *(str(record.spread(case, contender, value)) for value in (whole, imports))]
            line += [str(record.spread(case, contender, value)) for value in (warm_up, rounds)]
            line += [digits(rate.median), f"{digits(share.median)} %" if share else ""]
            line += [f"{record.spread(case, contender, lambda run: run['peak_mib']).high:.0f}"]
            if scores:
                line += [f"{run['final'][0][name]:.4f}" for name in work.SCORES]
            lines.append(line)
    return table(header, lines, num_left=2)


def score_table(record: Record, cases: Sequence[str]) -> str:
    """Mean final scores by algorithm."""
    lines = []
    for case in cases:
        for algorithm in work.ALGORITHMS:
            for contender in record.contenders(case):
                rows = [row for row in record.first(case, contender)["final"] if row["algorithm"] == algorithm]
                finite = [row for row in rows if all(math.isfinite(row[name]) for name in work.SCORES)]
                means = [statistics.mean(row[name] for row in finite) if finite else math.nan for name in work.SCORES]
                cells = [case, algorithm, contender, f"{len(finite)} of {len(rows)}"]
                lines.append([*cells, *(f"{mean:.4f}" for mean in means)])
    header = ["case", "algorithm", "contender", "finite", "mean log loss", "mean AP", "mean ROC-AUC"]
    return table(header, lines, num_left=3)


# ---- the page ---------------------------------------------------------------------------------------------------


def page(record: Record, picture: str) -> str:
    """The Markdown."""
    raw = record.record
    sweeps, single = (
        [case for case in work.CASES if record.contenders(case) and (case in TITLES) == is_sweep]
        for is_sweep in (True, False)
    )
    machine = raw["machine"]
    versions = {name: text for run in raw["runs"] for name, text in run.get("versions", {}).items()}
    num_repeats = 1 + max(run["repeat"] for run in raw["runs"])
    sections = ["# The engine against hand-written loops, Flower and pfl-research"]
    if raw["quick"]:
        sections.append("**A quick run: 2 rounds, 1 seed. It shows that everything works and measures nothing.**")
    sections += [
        f"{raw['began'][:10]}. {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"{machine['system']}, Python {machine['python']}, commit {machine['commit']}. "
        + ", ".join(f"{name} {versions[name]}" for name in sorted(versions))
        + ".",
        f"```bash\n{raw['command']}\n```",
        f"{num_repeats} repeat(s); within each, all contenders took turns. Median [smallest, largest].",
    ]
    if quotients(record):
        sections += ["## Ratios", RATIOS_TEXT, ratio_table(record)]
    sections.append(f"![Seconds of whole processes by phase]({picture})")
    if sweeps:
        sections += ["## Sweeps", time_table(record, sweeps, scores=False), *_padded_lines(record)]
    if single:
        sections += ["## One setting", time_table(record, single, scores=True)]
    if compared := [case for case in sweeps if case != "skewed9"]:
        sections += ["## Final scores", SCORES_TEXT, score_table(record, compared)]
    sections += ["## The floor", _floor_text(record), "## The work", WORK_TEXT]
    if record.failed:
        lines = [[run["case"], run["contender"], run["error"]] for run in record.failed]
        sections += ["## Failed", table(["case", "contender", "last message"], lines, num_left=3)]
    return "\n\n".join(sections) + "\n"


def _padded_lines(record: Record) -> list[str]:
    """Steps of the packed and of the padded form."""
    steps = {
        form: record.first("skewed9", f"fedjax_fraud, {form}")
        for form in ("packed", "padded")
        if record.runs("skewed9", f"fedjax_fraud, {form}")
    }
    return [
        f"{form.capitalize()}: {run['executed_steps'] / run['useful_steps']:.2f} steps executed for each step needed."
        for form, run in steps.items()
    ]


def _floor_text(record: Record) -> str:
    train, score = work.flops_per_row()
    rate = record.gflops_per_core()
    measured = f" Measured: {rate} GFLOP/s per core." if rate else " Not measured in this run."
    return (
        f"A trained row needs {train:,} floating-point operations in matrix products (forward, weight gradients, "
        f"hidden gradients, not the features'), a scored row {score:,}. The floor is the time of these operations at "
        "the rate of the fastest float32 product (NumPy, squares of 256 to 2,048) on all cores at once; *share of the "
        "floor* is the floor over the rounds alone, scoring included. One process can reach no more than one core's "
        f"share.{measured}"
    )


RATIOS_TEXT = (
    "Contender's seconds over ours, taken within each repeat: above 1, we are faster. Cold: with an empty compilation "
    "cache; warm: the next process with the same cache. Extrapolated: Flower ran one setting; *times settings* is that "
    "process as often as the sweep has settings, *one start* charges its start once and every setting's rounds."
)

SCORES_TEXT = (
    "Means over the settings of a sweep after the last round. The hand-written loops shuffle alike and agree to six "
    "digits; the others shuffle differently, so their scores agree only statistically."
)

WORK_TEXT = (
    f"{work.NUM_TRAIN:,} training and {work.NUM_TEST:,} test rows, {work.NUM_FEATURES} standard normal features, "
    "labels of a logistic model with about 1 % positives. Perceptron 16-64-32-1, ReLU, log loss; plain SGD with rate "
    f"{work.CLIENT_LR}, batches of {work.BATCH_SIZE} (the last of an epoch partial), 1 local epoch in a fresh order, "
    "all clients in every round, 10 rounds. Dirichlet partition by label; the same partitions and first models for "
    f"all. FedAvg; FedProx with mu = {work.MU}; SCAFFOLD, option II, equal weights. After every round log loss, "
    "average precision and ROC-AUC of the global model on the test rows, exact with ties. Cases k3, k10, k100: one "
    "setting with so many clients at alpha 0.5. This package also scores every bank after the last round, and the "
    "untrained model; that is extra work and counts as ours."
)


# ---- the picture ------------------------------------------------------------------------------------------------


def draw(record: Record) -> Figure:
    """Whole processes by phase, a panel for each of three cases."""
    cases = [case for case in ("sweep27", "sweep270", "k10-fedavg") if record.contenders(case)]
    counts = [len(record.contenders(case)) for case in cases]
    figure = Figure(figsize=(9, 1.2 + 0.9 * len(cases) + 0.34 * sum(counts)), layout="constrained")
    panels = figure.subplots(len(cases), 1, squeeze=False, gridspec_kw=dict(height_ratios=[n + 1 for n in counts]))
    for case, axes in zip(cases, panels[:, 0], strict=True):
        contenders = record.contenders(case)
        left = [0.0] * len(contenders)
        for (phase, colour), value in zip(PHASES.items(), (other, warm_up, rounds), strict=True):
            widths = [record.spread(case, contender, value).median for contender in contenders]
            axes.barh(contenders, widths, left=left, color=colour, height=0.7, label=phase)
            left = [a + b for a, b in zip(left, widths, strict=True)]
        for i, (end, contender) in enumerate(zip(left, contenders, strict=True)):
            axes.text(
                end + 0.01 * max(left), i, f"{digits(record.spread(case, contender, whole).median)} s", va="center"
            )
        num_settings = record.first(case, contenders[0])["num_settings"]
        axes.set_title(
            TITLES.get(case, "One federation (FedAvg), 10 clients").format(num_settings, num_settings // 9),
            loc="left",
            fontsize=11,
        )
        axes.set_xlim(0, 1.12 * max(left))
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1, 0].set_xlabel("seconds, whole process")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.06)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    return figure


def write(path: Path) -> None:
    """Writes the page and the picture beside the record ``path``."""
    record = Record(json.loads(path.read_text()))
    draw(record).savefig(path.with_suffix(".png"), dpi=130)
    path.with_suffix(".md").write_text(page(record, path.with_suffix(".png").name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path, help="the JSON file that the benchmark wrote")
    write(parser.parse_args().record)


if __name__ == "__main__":
    main()
