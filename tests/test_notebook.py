"""The notebook in examples/ runs from top to bottom."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "examples" / "tour.ipynb"


def test_the_tour_runs_and_says_what_it_promises() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs before committing"
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    outputs = [str(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    assert "Ran(started=True" in outputs[2]
    assert "Ran(started=False, done={}" in outputs[3]
    assert "end the contract" in outputs[4]
    assert "silver.captions pdfium" in outputs[8]
