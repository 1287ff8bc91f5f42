"""The page ``report.html``: the dossier with charts to choose from, in one file that fetches nothing.

The words and the tables are the dossier's, the charts those of ``charts``; the scripts that draw them stand in the
file. A content security policy names the only scripts that may run, by their digests, and forbids every request.
"""

import base64
import contextlib
import functools
import hashlib
import json
import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import altair as alt
import jinja2
import pandas as pd
import vl_convert
from markupsafe import Markup

from fedjax_fraud.cache import cache_folder
from fedjax_fraud.files import write_bytes_atomically

from . import charts, facts, prose, specs, wording
from .case import Case
from .dossier import all_scores, glance
from .question import asked
from .store import sha256

_FOLDER = pathlib.Path(__file__).parent
ALL = "all"
_MOST_PANELS = 4  # of that many alphas all are shown at first
_DIGITS = 6  # significant digits of the numbers in the page


class Section(NamedTuple):
    """A section of the page: charts, then sections of the dossier."""

    name: str
    heading: str
    charts: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


SECTIONS = (
    Section("scores", "Scores by round, traffic and time", ("curves",)),
    Section("joining", "What joining buys each bank", ("joining",), ("joining", "banks")),
    Section("partitions", "Partitions", ("partitions",), ("partitions",)),
    Section("drift", "Drift by round", ("drift",)),
    Section("differences", "Paired differences", ("differences",), ("differences", "against_local")),
    Section("final", "All scores after the last round", (), ("final", "cost")),
    Section("decisions", "At an alert budget", ("budgets",), ("budgets",)),
    Section("calibration", "Calibration", ("calibration",), ("calibration",)),
    Section("conditions", "When things go wrong", ("conditions",)),
    Section("privacy", "Privacy", (), ("privacy",)),
    Section("incidents", "Incidents", (), ("incidents",)),
)
_ELSEWHERE = ("title", "warning", "answer", "question", "scores", "data", "meaning", "record")


def page(case: Case, sections: Mapping[str, str]) -> str:
    """A sweep's result as a page for a risk committee.

    Args:
      case: see ``dossier.case_of``.
      sections: the dossier's, see ``dossier.sections``. Those that the page has no place for follow behind the others.

    Returns: HTML, the same for the same result; it needs no network and no other file.
    """
    view = charts.view_of(case)
    drawn = charts.charts(view)
    texts = dict(sections) | {"final": _final(case)}
    scripts = {
        "bundle": vega_bundle(),
        "notices": Markup(_text("page.notices.txt")),
        "page": _text("page.js"),
    }
    return _template().render(
        title="Federated fraud detection",
        policy=_policy(scripts["bundle"], scripts["page"]),
        style=Markup(_text("page.css")),
        light=_variables(specs.colours(view.looks)[0]),
        dark=_variables(specs.colours(view.looks)[1]),
        scripts={name: Markup(text) for name, text in scripts.items()},
        data=_json(_embedded(view, drawn)),
        asked=asked(case),
        settings=_html(sections["question"].partition(asked(case))[2], case),
        warning=_html(sections.get("warning", ""), case),
        answer=_answer(sections["answer"]),
        glance=_html(glance(case), case, "Average precision (PR-AUC) of the pooled test rows after the last round"),
        facts=_facts(case),
        controls=_controls(view),
        looks=_looks(view),
        sections=[section for section in _filled(texts, drawn, case)],
        data_words=_html(_below(sections["data"]), case),
        meaning=_html(_below(sections["meaning"]), case),
        record=_html(_below(sections["record"]), case),
        digest=facts.fact(case.manifest, "data", "sha256") or "not recorded",
        version=facts.fact(case.manifest, "versions", "fedjax_fraud") or "",
    )


@functools.cache
def vega_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed of the version that Altair writes specifications for, as one script.

    Putting it together takes seconds, so it is kept in the cache folder, behind its digest.
    """
    version = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    folder = cache_folder()
    path = None if folder is None else folder / f"vega-lite-{version}-{vl_convert.__version__}.js"
    kept = _kept_script(path)
    if kept is not None:
        return kept
    script = vl_convert.javascript_bundle(vl_version=version).replace("</script", "<\\/script")
    if path is not None:
        with contextlib.suppress(OSError):  # A read-only home: put it together each time.
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_bytes_atomically(path, f"{sha256(script.encode())}\n{script}".encode())
    return script


def _kept_script(path: pathlib.Path | None) -> str | None:
    """The script of a cache file; None if there is none, or it is damaged."""
    try:
        digest, _, script = path.read_text(encoding="utf-8").partition("\n") if path else ("", "", "")
    except (OSError, UnicodeDecodeError):
        return None
    return script if script and digest == sha256(script.encode()) else None


# ---- parts of the page ------------------------------------------------------------------------------------------


def _filled(texts: Mapping[str, str], drawn: Mapping[str, charts.Chart], case: Case) -> Iterator[dict]:
    """The sections that have something to show, and those of the dossier that no section asks for."""
    placed = {part for section in SECTIONS for part in section.parts} | set(_ELSEWHERE)
    others = [
        Section(name, prose.split_heading(text)[0], (), (name,)) for name, text in texts.items() if name not in placed
    ]
    for section in (*SECTIONS, *others):
        shown = [drawn[name] for name in section.charts if name in drawn]
        words = [_part(texts[name], section.heading, case) for name in section.parts if name in texts]
        if shown or words:
            yield {"name": section.name, "heading": section.heading, "charts": shown, "parts": words}


def _part(markdown: str, heading: str, case: Case) -> Markup:
    """A section of the dossier under a heading of its own, if it is another than the page's."""
    title, below = prose.split_heading(markdown)
    own = Markup("<h3>{}</h3>\n").format(title) if title != heading else Markup()
    return own + _html(below, case, title)


def _final(case: Case) -> str:
    """The scores of all cases in one table, in the words of the dossier's tables of scores."""
    return (
        "## All scores after the last round\n\n"
        "Mean over seeds [95 % interval], of the global model on the pooled test rows; *Local only* is the mean over "
        "banks of each bank's own model on the same rows. Communication is the total of all banks and rounds. The "
        "heading of a column sorts the table.\n\n" + all_scores(case)
    )


def _answer(markdown: str) -> dict[str, Any]:
    """The two sentences, and what they rest on."""
    lead, *rest = prose.split_heading(markdown)[1].split("\n\n")
    caption = "Differences in pairs: mean over seeds [95 % interval]"
    return {"lead": Markup(prose.html(lead)), "rest": Markup(prose.html("\n\n".join(rest), caption))}


def _facts(case: Case) -> list[tuple[str, str]]:
    """The numbers that frame every score."""
    manifest = case.manifest
    test = {name: facts.number_fact(manifest, "data", "test", name) for name in ("num_rows", "num_positives")}
    known = {name: f"{value:,.0f}" if math.isfinite(value) else wording.DASH for name, value in test.items()}
    diverged = case.rounds[["setting", "diverged"]].drop_duplicates("setting")["diverged"].astype(bool)
    return [
        ("Prevalence of fraud in the test rows", wording.quantity(case.prevalence)),
        ("Frauds among the test rows", f"{known['num_positives']} of {known['num_rows']}"),
        ("Banks", f"{case.partitions['client'].nunique():,}"),
        ("Seeds", f"{case.rounds['seed'].nunique():,}"),
        ("Runs that diverged", f"{int(diverged.sum()):,} of {len(diverged):,}"),
    ]


def _controls(view: charts.View) -> dict[str, Any]:
    """What can be chosen for all charts."""
    return {
        "scores": specs.SCORES,
        "alphas": view.alphas,
        "alpha": ALL if len(view.alphas) <= _MOST_PANELS else view.alphas[0],
        "conditions": view.conditions,
        "algorithms": [name for name in view.looks if name != "prevalence"],
    }


def _looks(view: charts.View) -> dict[str, dict]:
    """How the legends show an algorithm."""
    return {
        name: {
            "name": view.names[name],
            "colour": specs.colour(view.looks, name),
            "dashes": " ".join(map(str, specs.dashes(view.looks, name))),
            "marker": specs.marker(view.looks, name),
            "hollow": name == "local_only",
        }
        for name in view.looks
    }


def _html(markdown: str, case: Case, caption: str = "") -> Markup:
    """Markdown as HTML; tables of average precisions say the prevalence."""
    prevalence = wording.number(case.prevalence)
    return Markup(prose.html(markdown, caption, f"Prevalence of the pooled test rows: {prevalence}."))


def _below(markdown: str) -> str:
    """A section without its heading."""
    return prose.split_heading(markdown)[1]


# ---- what stands in the page ------------------------------------------------------------------------------------


def _embedded(view: charts.View, drawn: Mapping[str, charts.Chart]) -> dict:
    """What the page's script draws from."""
    return {
        "config": specs.CONFIG,
        "algorithms": [name for name in view.looks if name != "prevalence"],
        "charts": {
            name: {
                "choices": chart.choices,
                "alphas": chart.alphas,
                "title": chart.title,
                "rows": {source: _columnar(table, chart) for source, table in chart.rows.items()},
                "variants": {key: variant._asdict() | _columns(variant) for key, variant in chart.variants.items()},
            }
            for name, chart in drawn.items()
        },
    }


def _columns(variant: charts.Variant) -> dict:
    """The columns of a variant's table, by name."""
    return {"columns": [column._asdict() for column in variant.columns]}


def _columnar(table: pd.DataFrame, chart: charts.Chart) -> dict:
    """The columns of a table that the chart uses, column by column."""
    used = json.dumps([variant.spec for variant in chart.variants.values()])
    needed = set(charts.columns_of(chart))
    kept = [name for name in table.columns if name in needed or f"{name}:" in used or f'"{name}"' in used]
    return {name: [_plain(value) for value in table[name]] for name in kept}


def _plain(value: Any) -> Any:
    """A value for JSON: text, a whole number, a number of six significant digits, or null."""
    if isinstance(value, str):
        return value
    number = float(value)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**53 else float(f"{number:.{_DIGITS}g}")


def _json(value: Any) -> Markup:
    """JSON that cannot end the script that holds it."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character, escape in (
        ("&", "\\u0026"),
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("\u2028", "\\u2028"),
        ("\u2029", "\\u2029"),
    ):
        text = text.replace(character, escape)
    return Markup(text)


def _policy(*scripts: str) -> str:
    """The content security policy: these scripts, styles of the page, and nothing else."""
    digests = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    return f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def _variables(colours: Mapping[str, str]) -> Markup:
    """Variables of the stylesheet."""
    return Markup(" ".join(f"{name}: {colour};" for name, colour in colours.items()))


def _template() -> jinja2.Template:
    """The page's template, which escapes whatever is not marked as HTML."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_text("page.html.j2"))


def _text(name: str) -> str:
    """A file of the page beside this one."""
    return (_FOLDER / name).read_text(encoding="utf-8")
