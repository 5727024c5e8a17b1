"""Run the notebooks of this folder, each in an empty folder of its own, and keep what they print.

    python notebooks/execute.py                        # all of them, in place
    python notebooks/execute.py 1-first-study.ipynb    # some
    python notebooks/execute.py --check                # run, write nothing

What changes from run to run and says nothing (times of cells, versions of the kernel) is not kept. Ends with exit code
1 when a cell raises. Needs `pip install -e '.[notebooks]'`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

HERE = Path(__file__).parent
TIMEOUT_S = 150  # of one cell: a hang ends, a busy machine does not matter


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with fresh outputs. Raises: CellExecutionError."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=TIMEOUT_S, kernel_name="python3", record_timing=False)
        client.execute(cwd=folder)
    return stripped(notebook)


def stripped(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without volatile metadata; cells are numbered by their place."""
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for index, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{index}", {}
        if cell.cell_type == "code":
            # Progress on stderr is for who waits.
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    return notebook


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NOTEBOOK")
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    failed = 0
    for path in [HERE / name for name in arguments.names] or sorted(HERE.glob("*.ipynb")):
        try:
            notebook = execute(path)
        except CellExecutionError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            failed = 1
            continue
        if not arguments.check:
            nbformat.write(notebook, path)
        print(f"{path.name}: ran")
    return failed


if __name__ == "__main__":
    sys.exit(main())
