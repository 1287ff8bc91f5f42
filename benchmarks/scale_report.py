"""What `scale.py` measured, as a page and a picture. Runs nothing:

python -m benchmarks.scale_report            # the page again from the JSON files
"""

import argparse
import itertools
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator, StrMethodFormatter

from benchmarks import workload

# Okabe and Ito's blue and vermilion, which colour-blind readers tell apart; markers and dashes differ too.
ROUNDS_STYLE = dict(color="#0072B2", marker="o", linestyle="-")
COMPILE_STYLE = dict(color="#D55E00", marker="s", linestyle=(0, (5, 2)))


MEMORY = (
    "Why no step takes settings x rows: the transactions are on each device once, and every setting indexes the same "
    "copy; a partition is one order of the rows for each (alpha, seed), which all algorithms share; a batch is "
    "gathered when its step comes, for as many clients as there are lanes; scoring goes model by model, in chunks of "
    "8,192 rows. What grows with the settings are models, and with settings x banks SCAFFOLD's control variates."
)


class Spread(NamedTuple):
    """Median, smallest and largest of several runs."""

    median: float
    low: float
    high: float


class Axis(NamedTuple):
    """How one axis of the curves is shown: what it is called, and a point's place on it and name."""

    title: str
    position: Callable[[dict], float]
    name: Callable[[dict], str]


AXES = dict(
    rows=Axis(
        "training rows", lambda point: point["case"]["num_rows"], lambda point: _short(point["case"]["num_rows"])
    ),
    clients=Axis(
        "clients", lambda point: point["case"]["num_clients"], lambda point: _short(point["case"]["num_clients"])
    ),
    settings=Axis("settings", lambda point: point["num_settings"], lambda point: str(point["num_settings"])),
    width=Axis(
        "hidden layers (by number of parameters)",
        lambda point: _num_params(point["case"]["hidden"]),
        lambda point: "-".join(map(str, point["case"]["hidden"])),
    ),
)


def _short(number: int) -> str:
    """6000 -> 6k."""
    return f"{number // 1000}k" if number >= 1000 and number % 1000 == 0 else str(number)


def _num_params(hidden: list[int]) -> int:
    """Parameters of the perceptron: kernels and biases."""
    widths = [workload.NUM_FEATURES, *hidden, 1]
    return sum((a + 1) * b for a, b in itertools.pairwise(widths))


def spread(point: dict, field: str) -> Spread | None:
    """A field over the runs of a point that ended well; None if none did."""
    values = [run[field] for run in point["runs"] if "error" not in run]
    return Spread(statistics.median(values), min(values), max(values)) if values else None


def write(folder: Path) -> None:
    """Writes ``scale.md``, and ``scale.png`` if there are curves, from the parts in the folder."""
    parts = {path.stem.removeprefix("scale-"): json.loads(path.read_text()) for path in folder.glob("scale-*.json")}
    sections = [
        "# How the engine scales",
        "Written by `benchmarks/scale_report.py` from what `python -m benchmarks.scale` measured.",
    ]
    if "curves" in parts:
        sections += curves_page(parts["curves"])
        picture(parts["curves"]["axes"]).savefig(folder / "scale.png", dpi=130)
    if "paysim" in parts:
        sections += paysim_page(parts["paysim"])
    if "csv" in parts:
        sections += csv_page(parts["csv"])
    (folder / "scale.md").write_text("\n\n".join(sections) + "\n")


def _listed(values: list) -> str:
    return ", ".join(map(str, values))


# ---- curves -----------------------------------------------------------------------------------------------------


def curves_page(record: dict) -> list[str]:
    """The curves: what was run, the picture, a table for each axis, and the ratio of many clients to few."""
    axes, case = record["axes"], record["base"]["case"]
    return [
        "## Time against rows, clients, settings and width",
        f"One size at a time varies around {case['num_rows']:,} training rows x {workload.NUM_FEATURES} features (and "
        f"a third as many test rows), {case['num_clients']} clients, {record['base']['num_settings']} settings (alphas "
        f"{_listed(case['alphas'])}; {_listed(case['algorithms'])}; seeds: {case['num_seeds']}; no baselines), "
        f"{case['num_rounds']} rounds, hidden layers {'-'.join(map(str, case['hidden']))}, batches of "
        f"{case['batch_size']}. Each run is a process of its own that compiles afresh; runs a point: "
        f"{record['repeats']}, median [smallest, largest]. Rounds: training, and scoring every setting after each. "
        + workload.machine_line(record["machine"]),
        "![Seconds for the rounds and for compiling against rows, clients, settings and width](scale.png)",
        *(_axis_table(AXES[name], points) for name, points in axes.items()),
        *_many_clients(axes["clients"]),
    ]


def _axis_table(axis: Axis, points: list[dict]) -> str:
    header = [axis.title, "rounds, s", "compile, s", "whole sweep, s", "million rows trained / s", "peak, MiB"]
    fields = ("run_seconds", "compile_seconds", "total_seconds", "rows_per_second", "peak_mib")
    rows = []
    for point in points:
        shown = [spread(point, field) for field in fields]
        if shown[0] is None:
            rows.append([axis.name(point), point["runs"][0]["error"], *[""] * (len(fields) - 1)])
            continue
        rounds, compiled, total, rows_per_second, peak = shown
        rate = f"{rows_per_second.median / 1e6:.2f}"
        cells = [_seconds(rounds), _seconds(compiled), _seconds(total), rate, f"{peak.high:.0f}"]
        rows.append([axis.name(point), *cells])
    return workload.markdown_table(header, rows)


def _seconds(values: Spread) -> str:
    if values.low == values.high:
        return _digits(values.median)
    return f"{_digits(values.median)} [{_digits(values.low)}, {_digits(values.high)}]"


def _digits(seconds: float) -> str:
    """Two or three digits that say something."""
    return f"{seconds:.2f}" if seconds < 10 else f"{seconds:.1f}" if seconds < 100 else f"{seconds:.0f}"


def _many_clients(points: list[dict]) -> list[str]:
    """The time of 10,000 clients against that of 100, if both were run."""
    runs = {point["case"]["num_clients"]: point for point in points}
    seconds = {
        num_clients: [spread(runs[num_clients], field) for field in ("run_seconds", "compile_seconds")]
        for num_clients in (100, 10_000)
        if num_clients in runs
    }
    if len(seconds) < 2 or None in (seconds[100][0], seconds[10_000][0]):
        return []
    rounds, compiled = (many.median / few.median for many, few in zip(seconds[10_000], seconds[100], strict=True))
    steps = [runs[num_clients]["runs"][0]["useful_steps"] for num_clients in (100, 10_000)]
    return [
        f"**10,000 clients against 100 at the same rows: {rounds:.1f} times the time in rounds, {compiled:.1f} times "
        "that in compiling.** A batch holds rows of one client, so clients smaller than a batch need more steps for "
        f"the same rows: {steps[1] / steps[0]:.1f} times as many here."
    ]


def picture(axes: dict[str, list[dict]]) -> Figure:
    """Four panels, a curve for the rounds and one for compiling in each; both axes logarithmic."""
    figure = Figure(figsize=(12, 8.6), layout="constrained")
    for axes_of_panel, (name, points) in zip(figure.subplots(2, 2).flat, axes.items(), strict=True):
        _draw_panel(axes_of_panel, AXES[name], [point for point in points if spread(point, "run_seconds")])
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, fontsize=11)
    return figure


def _draw_panel(panel: Axes, axis: Axis, points: list[dict]) -> None:
    """Medians with bars from the smallest to the largest run; at each point the upper label above, the lower below."""
    places = [axis.position(point) for point in points]
    rounds, compiled = ([spread(point, f"{field}_seconds") for point in points] for field in ("run", "compile"))
    for label, values, style in (("rounds", rounds, ROUNDS_STYLE), ("compile", compiled, COMPILE_STYLE)):
        medians = [value.median for value in values]
        bars = [[value.median - value.low for value in values], [value.high - value.median for value in values]]
        panel.errorbar(places, medians, yerr=bars, label=label, capsize=3, **style)
        for place, value, other in zip(places, values, compiled if values is rounds else rounds, strict=True):
            _label_point(panel, place, value, above=value.median >= other.median, color=style["color"])
    panel.set(xscale="log", yscale="log", xlabel=axis.title, ylabel="seconds")
    panel.xaxis.set_major_locator(FixedLocator(places))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xticklabels([axis.name(point) for point in points])
    panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.margins(x=0.1, y=0.16)
    panel.grid(which="major", color="#DDDDDD", linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def _label_point(panel: Axes, place: float, value: Spread, *, above: bool, color: str) -> None:
    panel.annotate(
        _digits(value.median),
        (place, value.high if above else value.low),
        xytext=(0, 7 if above else -7),
        textcoords="offset points",
        ha="center",
        va="bottom" if above else "top",
        fontsize=9,
        color=color,
        path_effects=[withStroke(linewidth=3, foreground="white")],
        zorder=5,
    )


# ---- parts with one table ---------------------------------------------------------------------------------------


def paysim_page(record: dict) -> list[str]:
    """The PaySim-size sweep by phase."""
    run, arguments = record["run"], record["arguments"]
    title = f"## A sweep on {arguments['num_rows']:,} PaySim-like rows"
    if "error" in run:
        return [title, f"Not measured: the process {run['error']}."]
    total = sum(phase["seconds"] for phase in run["phases"])
    rows = [[phase["phase"], _digits(phase["seconds"]), f"{phase['peak_mib']:.0f}"] for phase in run["phases"]]
    all_phases = ["all", _digits(total), f"{run['peak_mib']:.0f}"]
    return [
        title,
        f"Generated by `paysim_like`, split by time into {run['num_train']:,} training and {run['num_test']:,} test "
        f"rows of {run['num_features']} features; 3 banks, {run['num_settings']} settings (alphas 0.1, 0.5, 1.0; "
        f"{_listed(arguments['algorithms'])}; 1 seed; no baselines), {arguments['num_rounds']} rounds, batches of "
        f"{arguments['batch_size']:,} rows (given, not chosen), hidden layers 64-32, {len(run['devices'])} devices. "
        + workload.machine_line(record["machine"]),
        workload.markdown_table(["phase", "s", "peak of the process so far, MiB"], [*rows, all_phases]),
        f"{run['rows_trained']:,} rows trained in the rounds, {run['rows_per_second'] / 1e6:.2f} million a second; "
        "each global model is also scored on all test rows after every round, within the same seconds.",
        MEMORY,
    ]


def csv_page(record: dict) -> list[str]:
    """Loading a CSV file, with and without its cache."""
    written, loads = record["written"], record["loads"]
    title = f"## `load_paysim` on a CSV file of {record['num_rows']:,} rows"
    failed = [run["error"] for run in (written, *loads.values()) if "error" in run]
    if failed:
        return [title, f"Not measured: a process {failed[0]}."]
    rows = [
        [name, _digits(run["seconds"]), f"{run['peak_mib']:.0f}", f"{run['imported_mib']:.0f}"]
        for name, run in loads.items()
    ]
    kept = loads["second, from the cache"]["kept_megabytes"]
    return [
        title,
        f"{written['megabytes']:.0f} MB of text, written by the generator in {written['seconds']:.0f} s; the kept "
        f"columns take {kept:.0f} MB. The file had just been written, so it was read from memory rather than from the "
        "disk. " + workload.machine_line(record["machine"]),
        workload.markdown_table(["load", "s", "peak, MiB", "of which imports, MiB"], rows),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=workload.RESULTS, help="with scale-*.json")
    write(parser.parse_args().folder)


if __name__ == "__main__":
    main()
