"""Makes the stored database of the present schema: `python -m tests.storage.assets.make`.

One file a schema revision, named by it and made once, by the version of the tuner that had it; never made again. Tests
open each of them with today's version. What the study holds follows from LANDSCAPE, whose answers are known.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from objectives.landscape import Fault, Interaction, Landscape, SimulatedKnob
from storage.migrate import head
from tuner.api import create_study, run_study
from tuner.spec import Budget, StudyOptions

FOLDER = Path(__file__).parent
STUDY = "old study ü"
LANDSCAPE = Landscape(
    knobs=(
        SimulatedKnob("tiles", ("small", "large"), "small", {"large": -0.3}),
        SimulatedKnob("fusion", ("off", "on", "wild"), "off", {"on": -0.1, "wild": -0.5}),
    ),
    interactions=(
        Interaction({"tiles": "large", "fusion": "on"}, fault=Fault.BUILD_FAILED),
        Interaction({"fusion": "wild"}, loss=0.5),
    ),
    noise=0.001,
    repeatable=True,
)


def make(path: Path) -> None:
    """Try all six candidates, and store the database as one file without its log."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/tuner.db"
        model = LANDSCAPE.save(Path(folder) / "landscape.json")
        backend_options = {"devices": "a,b"}
        options = StudyOptions(
            backend="synthetic", backend_options=backend_options, search="tpe", budget=Budget(10), control_every=3
        )
        create_study(STUDY, model, options, storage=url)
        run_study(STUDY, storage=url, devices=("all",))
        connection = sqlite3.connect(f"{folder}/tuner.db")
        connection.execute("VACUUM INTO ?", (str(path),))
        connection.close()


if __name__ == "__main__":
    target = FOLDER / f"{head()}.db"
    if target.exists():
        raise SystemExit(f"{target.name} is there already: a stored database is never made again")
    make(target)
