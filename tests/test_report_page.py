"""The page: one file without a single request, the dossier's words, and data that stay data."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from fedjax_fraud import report
from fedjax_fraud.report import charts, page, tables
from fedjax_fraud.report.case import case_of
from fedjax_fraud.report.dossier import sections
from fedjax_fraud.report.question import asked
from tests.test_report import GAINS, fake_result
from tests.test_report_charts import crossed
from tests.test_report_decisions import decided
from tests.test_report_prose import Tags

NAN = float("nan")
HOSTILE = "</script><b>x"


def page_of(result) -> str:
    case = case_of(result)
    return page.page(case, sections(case))


def embedded(text) -> dict:
    """What the page's script reads."""
    return json.loads(re.search(r'<script id="data-of-charts" type="application/json">(.*?)</script>', text, re.S)[1])


@pytest.fixture(scope="module")
def result():
    return decided(mus=(0.01, 0.1), diverged={("scaffold", 0.1, 3)})


@pytest.fixture(scope="module")
def text(result):
    return page_of(result)


@pytest.fixture(scope="module")
def tags(text):
    return Tags(text)


def test_nothing_is_fetched(tags):
    places = [
        (tag, value) for tag, attrs in tags.found for name, value in attrs.items() if name in ("src", "href", "srcset")
    ]
    assert places and all(value.startswith("#") for _, value in places)
    assert not {"link", "img", "iframe", "object", "embed", "base"} & {tag for tag, _ in tags.found}
    style = tags.text.split("/* Light by default")[1].split("@media (prefers-reduced-motion")[0]
    assert "url(" not in style and "@import" not in style


def test_the_security_policy_names_every_script_that_runs_and_no_host(text, tags):
    (policy,) = [attrs["content"] for attrs in tags.named("meta") if "http-equiv" in attrs]
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert policy == page._policy(*scripts) and policy.startswith("default-src 'none'; script-src 'sha256-")
    assert len(scripts) == 2 and "http" not in policy and "eval" not in policy


def test_every_link_leads_to_a_part_of_the_page_and_no_name_is_used_twice(tags):
    names = [attrs["id"] for _, attrs in tags.found if "id" in attrs]
    assert len(names) == len(set(names))
    assert {attrs["href"][1:] for attrs in tags.named("a")} <= set(names)
    labels = {name for _, attrs in tags.found for name in attrs.get("aria-labelledby", "").split()}
    assert labels and labels <= set(names)


def test_the_answer_stands_in_front_with_the_dossier_s_words(result, text, tags):
    case = case_of(result)
    sentence = sections(case)["answer"].split("\n\n")[1]
    places = [tags.text.index(part) for part in (asked(case), sentence, "Skip to the answer")]
    assert places[2] < places[0] < places[1] < tags.text.index("Average precision on each bank")
    headings = re.findall(r'<h2 id="h-[a-z]+">(.*?)</h2>', text)
    assert headings == [
        *("What was asked", "The answer"),
        *(section.heading for section in page.SECTIONS if section.name not in ("conditions", "privacy")),
        *("Data", "What the numbers mean", "Record"),
    ]


def test_every_average_precision_has_the_prevalence_beside_it(text):
    for caption, table in re.findall(r"<caption>(.*?)</caption>(.*?)</table>", text, re.S):
        if "PR-AUC" in caption or "PR-AUC" in table:
            assert "Prevalence" in caption or "Prevalence" in table


def test_every_section_of_the_dossier_has_a_place_and_new_ones_get_one(result):
    case = case_of(result)
    known = {part for section in page.SECTIONS for part in section.parts} | set(page._ELSEWHERE)
    assert set(sections(case)) <= known
    more = page.page(case, sections(case) | {"privacy": "## Privacy\n\nEpsilon 1.\n"})
    assert 'id="privacy"' in more and "Epsilon 1." in more


def test_numbers_in_the_page_are_the_tables_to_six_digits(result, text):
    rows = embedded(text)["charts"]["curves"]["rows"]["rows"]
    expected = tables.curves(tables.best_settings(result.rounds))
    for name in ("average_precision", "average_precision_low", "mb", "roc_auc"):
        shown = np.array([NAN if value is None else value for value in rows[name]], float)
        np.testing.assert_allclose(shown, expected[name], rtol=1e-5)
    assert "setting" not in rows and "bytes_up" not in rows


def test_all_scores_stand_in_one_table(result, text):
    table = text.split('<section id="final"')[1].split("</table>")[0]
    summary = tables.summarise(result.rounds)
    assert table.count("<tr>") == 1 + len(summary)
    for value in summary["average_precision"].dropna():
        assert f"{value:.4f}" in table


def test_what_data_say_is_escaped_everywhere():
    names, renamed = {0: HOSTILE, 1: "b", 2: "c"}, {"algorithm": {"scaffold": HOSTILE}}
    result = decided(alphas=(NAN,), num_seeds=2)
    columns = {"bank": result.partitions["client"].map(names)}
    data = result.manifest["data"] | {"features": (HOSTILE, "y"), "source": HOSTILE}
    result = result._replace(
        partitions=result.partitions.assign(**columns),
        banks=result.banks.assign(bank=result.banks["client"].map(names)).replace(renamed),
        decisions=result.decisions.replace(renamed),
        rounds=result.rounds.replace(renamed),
        manifest=result.manifest | {"data": data, "config": result.manifest["config"] | {HOSTILE: HOSTILE}},
    )
    text = page_of(result)
    tags = Tags(text)
    assert "b" not in {tag for tag, _ in tags.found} and HOSTILE in tags.text
    assert text.count("</script>") == 4
    banks = embedded(text)["charts"]["joining"]["rows"]["rows"]["category"]
    assert any(HOSTILE in bank for bank in banks)


SHAPES = [
    dict(num_seeds=1),
    dict(alphas=(0.1, NAN), num_rounds=1),
    dict(baselines=False, algorithms=("fedavg",)),
    dict(features="all"),
    dict(diverged={(name, 0.5, seed) for name in GAINS for seed in range(2)}),
]


@pytest.mark.parametrize("changes", SHAPES, ids=lambda changes: " and ".join(changes) or "plain")
def test_every_shape_of_result_has_a_page(changes):
    text = page_of(decided(**(dict(alphas=(0.5,), num_seeds=2, num_rounds=2) | changes)))
    assert ("NOT A DETECTION RESULT" in text) == (changes.get("features") == "all")
    assert not re.search(r"\bnan\b", Tags(text.split('<script id="data-of-charts"')[0]).text, re.I)


def test_conditions_can_be_chosen_where_they_vary(text):
    crossing = page_of(crossed(num_seeds=2))
    assert '<select name="conditions"' in crossing and "<option>50% stragglers</option>" in crossing
    assert 'id="chart-conditions"' in crossing
    assert '<select name="conditions"' not in text and 'id="chart-conditions"' not in text


def test_a_plain_result_without_manifest_has_a_page():
    result = fake_result(alphas=(0.5,), num_seeds=2, num_rounds=2)
    assert "not recorded" in page_of(result._replace(manifest={}))


def test_the_scripts_carry_their_licences(text):
    notices = text.split('id="notices">')[1]
    for name in ("vega", "vega-lite", "vega-embed", "vega-tooltip", "d3-scale", "semver"):
        assert name in notices
    assert "Redistributions in binary form" in notices and "ISC" in notices


def test_the_page_is_written_beside_the_dossier_and_named_in_the_manifest(tmp_path):
    small = decided(alphas=(0.5,), num_seeds=2, num_rounds=2)
    names = [path.name for path in report.write(small, tmp_path)]
    assert names.index("report.html") == names.index("dossier.md") + 1
    assert "report.html" in json.loads((tmp_path / "manifest.json").read_text())["files"]


def test_the_page_stays_small_however_much_was_run():
    text = page_of(fake_result(num_seeds=2, num_rounds=200, algorithms=("fedavg", "fedprox", "scaffold", "fednova")))
    assert len(text) - len(page.vega_bundle()) < 700_000


def test_altair_is_imported_by_its_users_only():
    code = "import sys, fedjax_fraud.report; assert not {'altair', 'vl_convert', 'jinja2'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_charts_without_their_own_legend_name_what_they_show(result):
    made = charts.charts(charts.view_of(case_of(result)))
    assert {name for name, chart in made.items() if not chart.legend} == {"partitions", "differences"}


def test_the_scripts_are_kept_for_the_next_page_unless_they_were_changed(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDJAX_FRAUD_CACHE", str(tmp_path))
    made = []
    monkeypatch.setattr(page.vl_convert, "javascript_bundle", lambda **_: made.append(1) or "let a; // </script>")
    wanted = "let a; // <\\/script>"

    def bundle():
        page.vega_bundle.cache_clear()
        return page.vega_bundle()

    try:
        assert bundle() == bundle() == wanted and len(made) == 1
        (kept,) = tmp_path.iterdir()
        kept.write_text(kept.read_text().replace("let a", "let b"))
        assert bundle() == wanted and len(made) == 2
        monkeypatch.setenv("FEDJAX_FRAUD_CACHE", "off")
        assert bundle() == wanted and len(made) == 3
    finally:
        page.vega_bundle.cache_clear()


def test_a_suspected_leak_stands_before_the_answer():
    made = decided(alphas=(0.5,), num_seeds=2)
    leak = dict(rule="blocked = 1", recall=1.0, precision=1.0, is_feature=True)
    manifest = made.manifest | {"data": made.manifest["data"] | {"suspected_leaks": [leak]}}
    text = page_of(made._replace(manifest=manifest))
    words = "THESE SCORES MAY NOT BE A DETECTION RESULT"
    assert words in text and text.index(words) < text.index("The answer</h2>") and "blocked = 1" in text
    assert words not in page_of(made)
