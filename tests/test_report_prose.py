"""Markdown as HTML: the dossier's forms, and nothing that data could smuggle in."""

import html.parser

import pytest

from fedjax_fraud.report import prose
from fedjax_fraud.report.wording import markdown_table


class Tags(html.parser.HTMLParser):
    """The elements of some HTML, with their attributes, and its text."""

    def __init__(self, text):
        super().__init__()
        self.found, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def named(self, tag):
        return [attrs for name, attrs in self.found if name == tag]


def test_a_table_has_a_caption_header_cells_and_a_box_to_scroll_in():
    text = "**Recall.**\n\n" + markdown_table(("alpha", "PR-AUC"), [["0.1", "0.5"], ["1", "0.7"]])
    tags = Tags(prose.html(text, "Budgets", "Prevalence: 0.01."))
    assert [cell["scope"] for cell in tags.named("th")] == ["col", "col", "row", "row"]
    assert [cell.get("class") for cell in tags.named("td")] == ["number", "number"]
    assert "Budgets: Recall. Prevalence: 0.01." in tags.text
    (box,) = tags.named("div")
    assert (
        box["role"] == "region" and box["tabindex"] == "0" and box["aria-label"] == "Budgets: Recall. Prevalence: 0.01."
    )


def test_only_tables_of_average_precisions_say_the_prevalence():
    assert "Prevalence" not in prose.html(markdown_table(("alpha", "Rows"), [["1", "2"]]), "Rows", "Prevalence: 0.01.")


def test_each_table_takes_the_heading_above_it():
    table = markdown_table(("a", "b"), [["1", "2"]])
    text = prose.html(f"### First\n\n{table}\n\n### Second\n\n{table}", "Scores")
    assert (
        "<caption><span>Scores: First</span></caption>" in text
        and "<caption><span>Scores: Second</span></caption>" in text
    )


@pytest.mark.parametrize(
    "hostile",
    [
        "</script><b>x",
        "<img src=http://a.example/x.png onerror=alert(1)>",
        "![x](http://a.example/x.png)",
        "[x](javascript:alert(1))",
        "<http://a.example>",
        '" onmouseover="alert(1)',
        "&lt;b&gt;",
    ],
)
def test_what_data_say_is_text_and_nothing_else(hostile):
    table = markdown_table(("Bank", hostile), [[hostile, "1"]])
    tags = Tags(prose.html(f"Banks {hostile}.\n\n{table}", hostile))
    assert {tag for tag, _ in tags.found} <= {
        "p",
        "div",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "span",
    }
    assert tags.text.count(hostile) == 4
    assert not {name for _, attrs in tags.found for name in attrs} - {
        "class",
        "role",
        "tabindex",
        "aria-label",
        "scope",
    }


def test_pictures_of_the_dossier_are_left_out():
    assert prose.html("Words.\n\n![Banks](banks.png)") == "<p>Words.</p>\n"


def test_a_heading_is_split_from_what_stands_below():
    assert prose.split_heading("### What joining buys\n\nWords.\n\nMore.") == ("What joining buys", "Words.\n\nMore.")
