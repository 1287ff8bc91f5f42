"""Do the engine's numbers agree with those that others published?

    python -m benchmarks.reproduce                    # R1 to R6: about a quarter of an hour on two cores
    python -m benchmarks.reproduce --only R1 R4
    python -m benchmarks.reproduce --quick            # fewer seeds and rounds, to runs/reproductions

Prints a table, ours beside theirs with a verdict for each line, and writes ``results/reproductions.json``, pictures and
``docs/reproductions.md``. Results that are not run again keep those of the time before. Everything is trained by the
engine (``simulate.run_rounds`` or ``sweep``); what others found stands in the scripts as data.
"""

import argparse
import functools
import importlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

if __package__ in (None, ""):  # Run as a file: the folder above is not on the path.
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks import workload
from benchmarks.reproductions.outcome import Outcome
from fedjax_fraud import cache, devices
from fedjax_fraud.report.wording import markdown_table

ROOT = Path(__file__).resolve().parent.parent
HEART = ROOT.parent / "shared" / "data" / "heart_disease"
PAGE = ROOT / "docs" / "reproductions.md"
MODULES = dict(R1="quadratics", R2="digits", R3="synthetic", R4="hospitals", R5="cubes", R6="claims")
KEYS = tuple(MODULES)


def runner(key: str) -> Callable[[bool], Outcome]:
    """``quick -> Outcome``."""
    module = importlib.import_module(f"benchmarks.reproductions.{MODULES[key]}")
    return functools.partial(module.run, HEART) if key == "R4" else module.run


# ---- what is kept -----------------------------------------------------------------------------------------------


def as_record(outcome: Outcome, seconds: float, quick: bool) -> dict:
    """An outcome as JSON, pictures by their captions."""
    return dict(
        title=outcome.title,
        source=outcome.source,
        setup=list(outcome.setup),
        quick=quick,
        seconds=round(seconds, 1),
        lines=[line._asdict() for line in outcome.lines],
        tables=[table._asdict() for table in outcome.tables],
        pictures={name: caption for name, (caption, _) in outcome.pictures.items()},
        record=outcome.record,
        machine=workload.machine(),
    )


def plain(value):
    """Numbers of NumPy as Python's, and what is not finite as text: strict JSON has none."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.7g}") if np.isfinite(value) else str(value)
    return value


# ---- what is shown ----------------------------------------------------------------------------------------------


def printed(key: str, record: dict) -> str:
    """The lines of one reproduction as text columns."""
    rows = [(line["what"], line["theirs"], line["ours"], line["verdict"]) for line in record["lines"]]
    widths = [max(len(row[i]) for row in [*rows, ("", "theirs", "ours", "")]) for i in range(3)]
    title = f"{key} {record['title']} ({record['seconds']:.0f} s)"
    header = f"  {'':{widths[0]}} | {'theirs':{widths[1]}} | {'ours':{widths[2]}} | verdict"
    body = [f"  {a:{widths[0]}} | {b:{widths[1]}} | {c:{widths[2]}} | {d}" for a, b, c, d in rows]
    return "\n".join([title, header, *body])


def counted(records: Mapping[str, dict]) -> str:
    """How many lines hold, of each reproduction and of all."""
    verdicts = ("holds", "does not hold", "undecided", "not tested")
    rows = []
    for key, record in records.items():
        found = [line["verdict"] for line in record["lines"]]
        rows.append([f"[{key} {record['title']}](#{anchor(key, record)})", *(str(found.count(v)) for v in verdicts)])
    return workload.markdown_table(["", *verdicts], rows)


def heading(key: str, record: dict) -> str:
    return f"{key}: {record['title']}"


def anchor(key: str, record: dict) -> str:
    """The link of a heading, as hosts of Markdown make it."""
    kept = [c for c in heading(key, record).lower() if c.isalnum() or c in " -_"]
    return "".join(kept).replace(" ", "-")


def page(records: Mapping[str, dict], pictures: str) -> str:
    """``docs/reproductions.md``; ``pictures``: where they are, seen from the page."""
    parts = [
        "# Published results, and ours beside them",
        "Written by `python -m benchmarks.reproduce`; every number is from that run. Training goes through the engine, "
        "`simulate.run_rounds` or `sweep`; the published values stand in `benchmarks/reproductions/` with their "
        "source. Brackets are 95 % Student t intervals over seeds. *Undecided*: the interval holds both answers.",
        counted(records),
    ]
    for key, record in records.items():
        shown = [[line[name] for name in ("what", "theirs", "ours", "verdict", "why")] for line in record["lines"]]
        parts += [f"## {heading(key, record)}", f"Source: {record['source']}.", *record["setup"]]
        parts.append(markdown_table(["", "theirs", "ours", "verdict", "remark"], shown))
        parts += [f"![{caption}]({pictures}/{name}.png)" for name, caption in record["pictures"].items()]
        for table in record["tables"]:
            parts += [table["caption"], markdown_table(table["header"], table["rows"])]
        run = "a quick run, few seeds" if record["quick"] else "the full run"
        parts.append(f"{record['seconds']:.0f} s, {run}; {workload.machine_line(record['machine'])}")
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=KEYS, default=KEYS, metavar="KEY", help="R1 ... R6")
    parser.add_argument("--quick", action="store_true", help="fewer seeds and rounds; writes to runs/reproductions")
    options = parser.parse_args(arguments)
    cache.use_compilation_cache()
    devices.use_all_cores()
    folder = ROOT / "runs" / "reproductions" if options.quick else workload.RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / "reproductions.json"
    records: dict[str, dict] = {}
    for key in KEYS:
        if key not in options.only:
            continue
        print(f"{key} ...", file=sys.stderr, flush=True)
        began = time.perf_counter()
        outcome = runner(key)(options.quick)
        records = json.loads(store.read_text()) if store.is_file() else {}  # Another run may have written meanwhile.
        records[key] = plain(as_record(outcome, time.perf_counter() - began, options.quick))
        for name, (_, figure) in outcome.pictures.items():
            figure.savefig(folder / f"{name}.png", dpi=110)
        records = {name: records[name] for name in KEYS if name in records}
        store.write_text(json.dumps(records, indent=1, allow_nan=False) + "\n")
        print(printed(key, records[key]) + "\n", flush=True)
    where = folder / "reproductions.md" if options.quick else PAGE
    where.write_text(page(records, "." if options.quick else "../benchmarks/results"))
    held = sum(line["verdict"] == "holds" for record in records.values() for line in record["lines"])
    total = sum(len(record["lines"]) for record in records.values())
    print(f"{held} of {total} lines hold; the page: {where.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
