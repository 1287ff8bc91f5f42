"""Our docstrings for the site: sections that begin on the line of their name, and equations.

The package writes ``Returns: a table with ...`` on one line, and ``.. math::`` blocks. Griffe reads a section's text
from the lines below its name only, and browsers read MathML. Both are translated here, so that the source stays as it
reads best.
"""

import re
import textwrap

import griffe
from latex2mathml.converter import convert

_SECTION = re.compile(r"^(Returns|Raises|Yields|Warns|Reference|Example):[ ]+(\S.*)$")
_NAMED = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Warns|Reference|Example):\s*$")
_MATH = re.compile(r"^\.\. math::[ ]*(.*)$")
_ERROR = re.compile(r"^([A-Z]\w*(?:Error|Warning))(?: (.*)|: (.*))?$", re.DOTALL)


def translate(docstring: str) -> str:
    """A docstring in the form that Griffe reads."""
    lines, result, at = docstring.splitlines(), [], 0
    while at < len(lines):
        section, named, math = _SECTION.match(lines[at]), _NAMED.match(lines[at]), _MATH.match(lines[at])
        if not (section or named or math):
            result.append(re.sub(r"(?<=\S)::$", ":", lines[at]))  # what follows is code, by its indent
            at += 1
            continue
        body, at = _body(lines, at + 1, indented=bool(named or math))
        if math:
            result += ["", _mathml("\n".join([math[1], *body])), ""]
        else:
            match = section or named
            text = ([section[2]] if section else []) + body
            result += ["", *_section(match[1], textwrap.dedent("\n".join(text)).splitlines()), ""]
    return "\n".join(result)


def _body(lines: list[str], at: int, *, indented: bool) -> tuple[list[str], int]:
    """The lines of a section from ``at`` on: up to a blank line that no indented line follows, or a new section."""
    body = []
    while at < len(lines):
        line = lines[at]
        if _SECTION.match(line) or _NAMED.match(line) or _MATH.match(line):
            break
        if not line.strip():
            rest = next((later for later in lines[at:] if later.strip()), "")
            if not rest.startswith(" "):
                break
        elif indented and not line.startswith(" "):
            break
        body.append(line)
        at += 1
    first = body[:1] if not indented else []
    rest = textwrap.dedent("\n".join(body[len(first) :])).splitlines()
    return [*(line.strip() for line in first), *rest], at


def _section(name: str, text: list[str]) -> list[str]:
    """One section, its text indented below its name."""
    if name == "Reference":  # no section of Griffe's
        return [f"**Reference:** {' '.join(line.strip() for line in text)}"]
    if name == "Example":
        name = "Examples"
    if name in ("Raises", "Warns"):
        if text[0].startswith("as "):  # those of another function
            return [f"**{name}:** {' '.join(line.strip() for line in text)}"]
        text = _errors(text)
    if name in ("Returns", "Yields"):
        text = [line if place == 0 or not line.strip() else f"  {line.strip()}" for place, line in enumerate(text)]
    return [f"{name}:", *(f"  {line}" if line.strip() else "" for line in text)]


def _errors(text: list[str]) -> list[str]:
    """``ValueError if ...`` as ``ValueError: if ...``, which is how Griffe tells the kind from its description."""
    if ":" in text[0].split(" ")[0]:
        return text
    whole = " ".join(line.strip() for line in text)
    parts = re.split(r"(?<=\.) (?=[A-Z]\w*Error )", whole)
    return [_ERROR.sub(lambda match: f"{match[1]}: {match[2] or match[3] or ''}", part) for part in parts]


def _mathml(latex: str) -> str:
    """A displayed equation; lines with & are aligned at it."""
    latex = textwrap.dedent(latex).strip()
    if "&" in latex:
        latex = rf"\begin{{split}}{latex}\end{{split}}"
    return f'<div class="scroll-math">{convert(latex, display="block")}</div>'


class OurDocstrings(griffe.Extension):
    """Translates every docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = translate(obj.docstring.value)
