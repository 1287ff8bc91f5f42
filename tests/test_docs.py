"""The documentation: its site builds without a warning, its links lead somewhere, and its examples run."""

import ast
import doctest
import inspect
import os
import pathlib
import re
import shlex
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import fedjax_fraud as ff
from fedjax_fraud import cli

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)


def page_name(path):
    return str(path.relative_to(ROOT))


# ---- the site ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; a warning is an error, and whoever asks the network meets a closed port."""
    for name in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(name, reason="needs the extra `docs`: pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    closed = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", "docs/site/mkdocs.yml", "-d", str(folder)]
    environment = os.environ | closed | {"NO_MKDOCS_2_WARNING": "1"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


def test_the_site_fetches_nothing(site):
    """No font, script, style or picture from elsewhere: the pages can be read without a network."""
    fetched = re.compile(r"<(?:link|script|img|iframe)\b[^>]*\b(?:href|src)=[\"']?(?:https?:)?//[^>]*>")
    found = {
        page_name(ROOT / path.relative_to(site)): fetched.findall(path.read_text()) for path in site.rglob("*.html")
    }
    assert len(found) > 20
    assert not {name: tags for name, tags in found.items() if tags}


def test_the_site_shows_what_the_docstrings_say(site):
    """Sections that begin on the line of their name, and equations, are translated."""
    page = (site / "reference/metrics.html").read_text()
    assert "scalar in [0, 1]; 1 if every row is a fraud" in page
    for heading in ("Parameters", "Returns", "Raises", "Examples"):
        assert heading in page
    equations = (site / "reference/algorithms.html").read_text()
    assert "<math" in equations and ".. math::" not in equations


def described_parameters():
    """(place, parameters that ``Args:`` names, parameters that there are) of every function that describes some."""
    for path in sorted((ROOT / "fedjax_fraud").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            text = isinstance(node, ast.FunctionDef) and ast.get_docstring(node)
            if not text or "Args:\n" not in text:
                continue
            section = re.match(r"(?:  .*\n?|\n(?=  ))*", text.partition("Args:\n")[2])[0]
            named = [
                name for group in re.findall(r"^  (\S[^:\n]*):", section, re.MULTILINE) for name in group.split(", ")
            ]
            arguments = node.args
            known = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            known += [one for one in (arguments.vararg, arguments.kwarg) if one]
            yield f"{path.stem}.{node.name}", {name.lstrip("*") for name in named}, {one.arg for one in known}


def test_docstrings_describe_the_parameters_that_there_are():
    found = list(described_parameters())
    assert len(found) > 40
    assert not [(place, named - known) for place, named, known in found if named - known]


# ---- links ------------------------------------------------------------------------------------------------------


def slug(heading):
    """The anchor that GitHub and the site both give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(path):
    text = BLOCK.sub("", path.read_text())
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_relative_link_and_picture_is_there(page):
    text = re.sub(r"`[^`\n]*`", "", BLOCK.sub("", page.read_text()))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


# ---- examples ---------------------------------------------------------------------------------------------------


def documented(path):
    """The objects of a source file whose docstrings have examples: (name, docstring, line)."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node) or ""
            if ">>>" in text:
                yield getattr(node, "name", path.stem), text, getattr(node, "lineno", 1)


EXAMPLES = [(path, *found) for path in sorted((ROOT / "fedjax_fraud").rglob("*.py")) for found in documented(path)]


@pytest.mark.parametrize("path, name, text, line", EXAMPLES, ids=[f"{path.stem}.{name}" for path, name, *_ in EXAMPLES])
def test_the_example_of_a_docstring_runs(path, name, text, line):
    dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    __import__(dotted)
    test = doctest.DocTestParser().get_doctest(text, dict(vars(sys.modules[dotted])), name, str(path), line)
    said = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert not said, "".join(said)


WITH_EXAMPLE = {
    ff.data: ("load_table", "paysim_like", "split"),
    ff.partition: (
        *("client_of", "controlled", "dirichlet_feature", "dirichlet_labels", "dirichlet_proportions"),
        *("dirichlet_quantity", "feature_bins", "iid", "natural", "summary"),
    ),
    ff.metrics: (
        *("average_precision_score", "brier_score_loss", "log_loss", "precision_at_budget", "recall_at_budget"),
        *("roc_auc_score", "value_recall_at_budget"),
    ),
    ff.models: ("as_vector", "from_flax", "logistic_regression", "mlp"),
    ff.algorithms: ("fedavg", "fedprox", "scaffold"),
    ff.report: ("mean_interval", "write"),
    ff: ("simulate", "sweep"),
}


@pytest.mark.parametrize("module", WITH_EXAMPLE, ids=lambda module: module.__name__)
def test_what_people_call_most_has_an_example(module):
    assert not [name for name in WITH_EXAMPLE[module] if ">>>" not in inspect.getdoc(getattr(module, name))]


PYTHON_PAGES = [page for page in PAGES if any(language == "python" for language, _ in BLOCK.findall(page.read_text()))]


@pytest.fixture
def small_sizes(monkeypatch):
    """The examples as they stand, with fewer rows, seeds and rounds where they ask for many; no entry added stays."""
    paysim_like, sweep, simulate = ff.data.paysim_like, ff.sweep, ff.simulate

    def few_rows(num_rows=100_000, seed=0, *, fraud_rate=0.05, **options):
        return paysim_like(min(num_rows, 2_000), seed, fraud_rate=fraud_rate, **options)

    def few_seeds(*tables, seeds=10, num_rounds=10, **options):
        return sweep(*tables, seeds=min(seeds, 2), num_rounds=min(num_rounds, 2), **options)

    def few_rounds(*arguments, num_rounds=10, **options):
        return simulate(*arguments, num_rounds=min(num_rounds, 2), **options)

    monkeypatch.setattr(ff.data, "paysim_like", few_rows)
    monkeypatch.setattr(ff, "sweep", few_seeds)
    monkeypatch.setattr(ff, "simulate", few_rounds)
    known = dict(ff.algorithms.ALGORITHMS)
    yield
    ff.algorithms.ALGORITHMS.clear()
    ff.algorithms.ALGORITHMS.update(known)


def write_tables(folder):
    """The files that pages read: the reader's own."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "ts": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(400), unit="h"),
            "bank": rng.choice(["North", "South"], 400),
            "customer": [f"C{number}" for number in rng.integers(0, 50, 400)],
            "kind": rng.choice(["app", "web"], 400),
            "amount": rng.lognormal(3, 1, 400),
            "is_fraud": rng.random(400) < 0.1,
        }
    )
    frame.to_csv(folder / "my.csv", index=False)
    frame[:5].assign(kind="telex").to_csv(folder / "new.csv", index=False)


def write_results(folder):
    """A folder of results, for a page that loads one."""
    train, test = ff.data.split(ff.data.paysim_like(500, seed=0, fraud_rate=0.1))
    model = ff.models.logistic_regression(train.features.shape[1])
    small = dict(algorithms=("fedavg",), alphas=(1.0,), seeds=1, num_rounds=1, baselines=False, model=model)
    ff.report.write(ff.sweep(train, test, **small), folder / "results")


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=page_name)
def test_the_python_of_a_page_runs(page, small_sizes, tmp_path, monkeypatch):
    write_tables(tmp_path)
    if page.name == "runs.md":
        write_results(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__", "ff": ff}
    for language, code in BLOCK.findall(page.read_text()):
        if language == "python":
            exec(compile(code, page_name(page), "exec"), names)


def commands(code):
    """The arguments of every ``fedjax-fraud`` in lines of shell, also of those in quotes."""
    for line in code.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;()")
        lexer.whitespace_split = True
        tokens = list(lexer)
        for at, token in enumerate(tokens):
            if token.endswith("fedjax-fraud"):
                end = next((i for i, one in enumerate(tokens) if i > at and set(one) <= set("&|;()")), len(tokens))
                yield tokens[at + 1 : end]
            elif "fedjax-fraud " in token:
                yield from commands(token[token.index("fedjax-fraud ") :])


NAMES = [command.__name__.rpartition(".")[2] for command in cli.COMMANDS]
COMMANDS = [
    (page_name(page), arguments)
    for page in PAGES
    for language, code in BLOCK.findall(page.read_text())
    if language == "bash"
    for arguments in commands(code)
    if arguments and arguments[0] in NAMES
]


@pytest.mark.parametrize(
    "page, arguments", COMMANDS, ids=[f"{page}: {' '.join(words)}"[:90] for page, words in COMMANDS]
)
def test_the_options_of_a_command_on_a_page_exist(page, arguments):
    """Parsed, not run: the tutorial's output is from a real run, and the command's own tests run it."""
    cli.parser.parse(cli.make_parser(), arguments)
