"""The page in a browser: draws without a network, obeys its controls and the keyboard, fits screens and paper."""

import os
import pathlib
import shutil

import pytest

from fedjax_fraud.report import page
from fedjax_fraud.report.case import case_of
from fedjax_fraud.report.dossier import sections
from tests.test_report_charts import crossed

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e '.[test]'")

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install the package `chromium`, or set CHROMIUM")
SIZES = [(1440, 900), (390, 844)]


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> pathlib.Path:
    """A page with everything in it: two alphas, conditions, time, decisions."""
    case = case_of(crossed(alphas=(0.1, 1.0), num_seeds=3))
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page.page(case, sections(case)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser, file):
    """Opens the page: no network, and what the console says is an error."""
    contexts, problems = [], []

    def opened(width=1440, height=900, **settings):
        context = browser.new_context(viewport={"width": width, "height": height}, offline=True, **settings)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: problems.append(message.text) if message.type != "log" else None)
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("request", lambda request: problems.append(request.url) if "report.html" not in request.url else None)
        tab.goto(file.as_uri())
        drawn(tab)
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


def drawn(tab) -> None:
    """Waits until every chart shows what is chosen."""
    tab.wait_for_selector("html[data-drawn]", state="attached", timeout=30_000)


def marks(tab, name: str) -> str:
    """What a chart has drawn."""
    return tab.eval_on_selector(f"#chart-{name} .panels", "node => node.innerHTML")


def choose(tab, name: str, value: str) -> None:
    """Chooses a value of a control as a reader does."""
    tab.locator(f"label:has(input[name={name}][value='{value}'])").click()
    drawn(tab)


def overflow(tab) -> list[str]:
    """What sticks out of the page at the right."""
    return tab.evaluate(
        """() => {
            const width = document.documentElement.clientWidth;
            if (document.documentElement.scrollWidth <= width) return [];
            return [...document.querySelectorAll("body *")]
                .filter((node) => node.getBoundingClientRect().right > width + 1 && !node.closest(".scroll"))
                .map((node) => node.outerHTML.slice(0, 120));
        }"""
    )


def test_every_chart_is_drawn_as_svg_with_text(visit):
    tab = visit()
    for figure in tab.locator("figure.chart").all():
        assert figure.locator("svg.marks").count() >= 1, figure.get_attribute("id")
        assert figure.locator("svg.marks text").count() > 3
        assert figure.locator("[aria-label]").count() > 3
    assert tab.locator("#chart-curves svg.marks").count() == 2


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_page_does_not_scroll_sideways(visit, width, height):
    tab = visit(width, height)
    tab.evaluate("() => document.querySelectorAll('details').forEach((details) => (details.open = true))")
    assert overflow(tab) == []
    assert tab.evaluate("() => document.documentElement.scrollWidth") <= width


def test_each_choice_changes_the_marks_of_its_charts_alone(visit):
    """One after the other on one page, which takes seconds to open."""
    tab = visit()
    for control, value, changed, same in [
        ("score", "log_loss", "curves", "joining"),
        ("score", "roc_auc", "differences", "budgets"),
        ("axis", "mb", "curves", "drift"),
        ("axis", "time", "curves", "conditions"),
        ("algorithm", "scaffold", "curves", "partitions"),
        ("algorithm", "fedavg", "calibration", "partitions"),
        ("holding", "kl", "partitions", "curves"),
        ("measure", "precision", "budgets", "curves"),
        ("alpha", "1", "curves", None),
    ]:
        before = {name: marks(tab, name) for name in (changed, same) if name}
        choose(tab, control, value)
        assert marks(tab, changed) != before[changed], (control, value)
        if same:
            assert marks(tab, same) == before[same], (control, value)


def test_other_conditions_change_the_curves(visit):
    tab = visit()
    before = marks(tab, "curves"), tab.locator("#chart-curves .numbers").inner_html()
    tab.select_option("select[name=conditions]", "50% stragglers")
    drawn(tab)
    assert marks(tab, "curves") != before[0] and tab.locator("#chart-curves .numbers").inner_html() != before[1]


def test_the_numbers_beside_a_chart_are_those_of_its_marks(visit):
    tab = visit()
    choose(tab, "alpha", "0.1")
    tab.locator("#chart-curves summary").click()
    rows = tab.locator("#chart-curves .numbers tbody tr").all_inner_texts()
    described = tab.locator("#chart-curves svg path[aria-roledescription=point]").all()
    assert len(rows) == len(described) + 3  # two baselines and the prevalence have levels, not points
    assert "FedAvg" in rows[0] and "[" in rows[0]


def test_without_any_algorithm_the_page_stands(visit):
    tab = visit()
    for box in tab.locator("input[name=algorithm]").all():
        box.uncheck()
    drawn(tab)
    assert "Nothing chosen has numbers here." in tab.locator("#chart-drift").inner_text()


def test_the_heading_of_a_column_sorts_by_number_and_back(visit):
    tab = visit()
    table = tab.locator("#final table").first
    heading = table.get_by_role("button", name="PR-AUC", exact=True)
    column = table.locator("thead th").all_inner_texts().index("PR-AUC") + 1

    def shown():
        texts = table.locator(f"tbody tr > :nth-child({column})").all_inner_texts()
        return [float(text.split()[0]) for text in texts]

    first = shown()
    heading.click()
    assert shown() == sorted(first) != first
    assert table.locator("th[aria-sort=ascending]").inner_text() == "PR-AUC"
    heading.click()
    assert shown() == sorted(first, reverse=True)
    assert table.locator("th[aria-sort=descending]").count() == 1
    table.get_by_role("button", name="Algorithm").click()
    names = table.locator("tbody tr > :nth-child(2)").all_inner_texts()
    assert names == sorted(names, key=str.casefold)


def test_the_keyboard_alone_reaches_and_moves_the_controls(visit):
    tab = visit()
    tab.keyboard.press("Tab")
    assert tab.evaluate("() => document.activeElement.textContent") == "Skip to the answer"
    reached = []
    for _ in range(60):
        tab.keyboard.press("Tab")
        reached.append(tab.evaluate("() => document.activeElement.name || ''"))
        if "algorithm" in reached:
            break
    assert [name for name in dict.fromkeys(reached) if name] == ["score", "alpha", "conditions", "algorithm"]
    before = marks(tab, "curves")
    tab.keyboard.press("Space")
    drawn(tab)
    assert marks(tab, "curves") != before
    tab.locator("input[name=score]:checked").focus()
    tab.keyboard.press("ArrowRight")
    drawn(tab)
    assert tab.locator("input[name=score]:checked").get_attribute("value") == "roc_auc"
    outline = tab.evaluate("() => getComputedStyle(document.activeElement.nextElementSibling).outlineStyle")
    assert outline == "solid"
    tab.locator("#final button.sort").first.focus()
    tab.keyboard.press("Enter")
    assert tab.locator("#final th[aria-sort]").count() == 1


def colours(tab) -> list[str]:
    """The page's ground, its ink, and the first line's colour in the first chart."""
    return tab.evaluate(
        """() => [
            getComputedStyle(document.body).backgroundColor,
            getComputedStyle(document.body).color,
            getComputedStyle(document.querySelector("#chart-curves path[aria-roledescription='line mark']")).stroke,
            getComputedStyle(document.querySelector("#chart-curves .role-axis-label text")).fill,
        ]"""
    )


def test_the_dark_scheme_has_other_colours_in_page_and_charts_and_paper_is_light(visit):
    tab = visit(color_scheme="dark")
    dark = colours(tab)
    tab.emulate_media(color_scheme="light")
    light = colours(tab)
    assert all(one != other for one, other in zip(dark, light, strict=True))
    tab.emulate_media(color_scheme="dark", media="print")
    assert colours(tab)[1:] == light[1:]


def test_paper_has_no_controls_and_everything_open(visit):
    tab = visit()
    tab.emulate_media(media="print")
    assert not any(tab.locator(name).first.is_visible() for name in (".toolbar", ".contents", ".choice", ".skip"))
    assert tab.locator(".legend").first.is_visible()
    assert tab.pdf()[:5] == b"%PDF-"
    tab.evaluate("() => window.dispatchEvent(new Event('beforeprint'))")
    assert tab.locator("details:not([open])").count() == 0
    tab.evaluate("() => window.dispatchEvent(new Event('afterprint'))")
    assert tab.locator("details[open]").count() == 0


def test_a_request_would_be_refused_by_the_page_itself(browser, file):
    """Even with a network: the security policy in the file forbids it."""
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(file.as_uri())
    drawn(tab)
    refused = tab.evaluate("() => fetch('http://127.0.0.1:9/').then(() => '', (error) => error.name)")
    injected = tab.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.ran = true";
            document.body.append(script);
            return window.ran === true;
        }"""
    )
    context.close()
    assert refused == "TypeError" and injected is False
