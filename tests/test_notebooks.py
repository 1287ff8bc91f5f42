"""The notebooks: they run from top to bottom without a warning, carry no outputs, and begin alike."""

import os
import pathlib

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = pathlib.Path(__file__).parent.parent
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS_A_CELL = 300


@pytest.fixture(params=PATHS, ids=lambda path: path.stem)
def notebook(request):
    """One notebook after the other, as it is stored."""
    return nbformat.read(request.param, as_version=4)


def test_there_are_five():
    assert [path.stem[:2] for path in PATHS] == ["00", "01", "02", "03", "04"]


def test_it_is_valid_and_carries_no_output(notebook):
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None, f"clear the output of {cell.id}"


def test_it_begins_with_a_title_and_the_install_cell(notebook):
    title, install, *_ = notebook.cells
    assert title.cell_type == "markdown" and title.source.startswith("# ")
    assert install.cell_type == "code"
    assert "import fedjax_fraud" in install.source and "%pip install" in install.source
    assert '\nSOURCE = ""\n' in install.source, "no address is known: the reader sets it"


def test_all_install_cells_are_the_same():
    assert len({nbformat.read(path, as_version=4).cells[1].source for path in PATHS}) == 1


def test_it_runs_without_a_warning_and_draws(notebook, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    # A notebook trains for seconds, so some optimising pays: see conftest.py.
    flags = os.environ.get("XLA_FLAGS", "")
    environment["XLA_FLAGS"] = flags.replace("optimization_level=0", "optimization_level=1")
    client = NotebookClient(
        notebook, timeout=SECONDS_A_CELL, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute(env=environment)  # an error in a cell is raised
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    said = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stderr")
    assert "Warning" not in said, said
    assert any("image/png" in output.get("data", {}) for output in outputs)
