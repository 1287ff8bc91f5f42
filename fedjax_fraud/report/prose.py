"""The dossier's Markdown as HTML: tables with captions, header cells and boxes to scroll in; nothing that can fetch."""

import re
from collections.abc import Iterator, Sequence
from html import escape

from markdown_it import MarkdownIt
from markdown_it.token import Token

# What could fetch, or carry markup of its own, stays plain text.
_SWITCHED_OFF = ["html_block", "html_inline", "link", "image", "autolink", "reference", "entity"]
_PICTURE = re.compile(r"^!\[.*\]\(.*\)$", re.MULTILINE)
_NUMBER = re.compile(r"[-+<>]?\s*\d|—|not reached|^$")
_LEAD = re.compile(r"\*\*(.+?)\.?\*\*")


def html(markdown: str, caption: str = "", note: str = "") -> str:
    """Markdown as HTML. Text that looks like HTML is shown as text; links and pictures are left out.

    Args:
      markdown: as the dossier writes it.
      caption: of the tables; the nearest heading or bold lead above a table follows it.
      note: put behind the caption of a table that shows average precisions.

    Returns: HTML with headings from ``h3`` on, each table in a box that scrolls by itself and can be reached by
      keyboard.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(_SWITCHED_OFF)
    tokens = parser.parse(_PICTURE.sub("", markdown))
    _mark_cells(tokens)
    titles = _captions(tokens, caption, note)
    return parser.renderer.render(_boxed(tokens, titles), parser.options, {})


def split_heading(markdown: str) -> tuple[str, str]:
    """The heading of a section without its marks, and what stands below it."""
    first, _, rest = markdown.partition("\n")
    return first.lstrip("# "), rest.strip()


def _mark_cells(tokens: Sequence[Token]) -> None:
    """Header cells for columns and rows; columns of numbers get a class, and stand at the right."""
    cells: list[list[tuple[Token, str]]] = []
    for token, after in zip(tokens, [*tokens[1:], None], strict=False):
        if token.type == "table_open":
            cells = []
        elif token.type == "tr_open":
            cells.append([])
        elif token.type in ("th_open", "td_open"):
            token.attrs = {"scope": "col"} if token.type == "th_open" else {}
            cells[-1].append((token, after.content))
        elif token.type == "table_close":
            _mark_numbers(cells)
    _mark_row_headers(tokens)


def _mark_numbers(cells: Sequence[Sequence[tuple[Token, str]]]) -> None:
    """The class of the columns of which no cell says anything but numbers; the first column is always text."""
    for column in list(zip(*cells, strict=True))[1:]:
        if all(_NUMBER.match(text) for _, text in column[1:]):
            for token, _ in column:
                token.attrs["class"] = "number"


def _mark_row_headers(tokens: Sequence[Token]) -> None:
    """The first cell of a row of the body is its header."""
    first = False
    for token in tokens:
        if token.type == "tr_open":
            first = True
        elif token.type == "td_open" and first:
            token.tag, token.attrs["scope"] = "th", "row"
        elif token.type == "td_close" and first:
            token.tag, first = "th", False


def _captions(tokens: Sequence[Token], caption: str, note: str) -> Iterator[str]:
    """A caption for each table: what it is given, the heading or lead above, the note."""
    lead, headers = "", []
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "inline" and before.type == "heading_open":
            lead = token.content
        elif token.type == "inline" and before.type == "paragraph_open" and (found := _LEAD.match(token.content)):
            lead = found[1]
        elif token.type == "inline" and before.type == "th_open":
            headers.append(token.content)
        elif token.type == "table_close":
            shown = [caption, lead if lead != caption else ""]
            scored = any("PR-AUC" in header for header in headers)
            yield ": ".join(filter(None, shown)) + (f". {note}" if note and scored else "")
            headers = []


def _boxed(tokens: Sequence[Token], titles: Iterator[str]) -> list[Token]:
    """Each table in its box, with its caption."""
    boxed = []
    for token in tokens:
        if token.type == "table_open":
            title = next(titles)
            box = f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(title)}">\n'
            boxed += [_raw(box), token, _raw(f"<caption><span>{escape(title)}</span></caption>\n")]
        elif token.type == "table_close":
            boxed += [token, _raw("</div>\n")]
        else:
            boxed.append(token)
    return boxed


def _raw(text: str) -> Token:
    """Our own markup among the tokens."""
    return Token("html_block", "", 0, content=text)
