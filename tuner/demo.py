"""Demo: a study of a trained network on real files, ready to run.

Flow: `python -m tuner demo` -> HERE makes data and study -> the same run as any study's.
The network is magika's file-type model, as its PyPI package ships it. It reads the first and last 1,024 bytes of a
file, white space at both ends left out, shorter files padded.
"""

from __future__ import annotations

import json
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from objectives.accuracy import Limit
from objectives.requests import Judging
from objectives.timing import TimingPlan
from storage.errors import StorageError
from tuner.api import create_study, show_study
from tuner.errors import UsageError
from tuner.spec import Budget, StudyOptions, WorkloadOptions

LIMITS = (Limit("top1", 0.0), Limit("rel_l2", 5e-2))
_BATCH = 1
_PAIRS = 48
_MOST_PER_SUFFIX = 6  # so that the batch shows many kinds of files, not sixty Python files
TIMING = TimingPlan(budget_ms=800.0)


def prepare(
    name: str,
    budget: Budget,
    *,
    storage: str,
    artifacts: Path | None = None,
    knobs: tuple[str, ...] = (),
    timing: TimingPlan = TIMING,
) -> list[str]:
    """Create the demo's study unless it is there; returns what to tell the user."""
    try:
        show_study(name, storage=storage)
        return [f"going on with study {name!r} in {storage}"]
    except StorageError:
        pass  # no database or no such study yet: the usual case
    model = _model_folder()
    with tempfile.TemporaryDirectory(prefix="tuner-demo-") as folder:
        files = sample_files(_BATCH * _PAIRS)
        _write_batches(files, _config(model), Path(folder))
        options = StudyOptions(
            backend="onnxruntime",
            knobs=knobs,
            workload=WorkloadOptions(inputs=(folder,)),
            judging=Judging(limits=LIMITS),
            budget=budget,
            timing=timing,
            trial_timeout_s=60.0,
        )
        created = create_study(name, model / "model.onnx", options, storage=storage, artifacts=artifacts)
    kinds = len({file.suffix for file in files})
    return [
        f"study {name!r} in {storage}: magika's file-type network ({created.model.size_bytes / 1e6:.1f} MB), "
        f"{len(files)} real files of {kinds} kinds, one a batch",
        f"limits: {', '.join(str(limit) for limit in LIMITS)}; {created.n_knobs} knobs, "
        f"{created.n_candidates:,} candidates",
    ]


def sample_files(count: int) -> list[Path]:
    """`count` files of this installation, of as many kinds as there are, always the same ones."""
    root = Path(sysconfig.get_paths()["stdlib"])
    site = Path(sysconfig.get_paths()["purelib"])
    seen: dict[str, list[Path]] = {}
    for path in sorted(file for folder in (site, root) for file in folder.rglob("*") if file.is_file()):
        group = seen.setdefault(path.suffix, [])
        if len(group) < _MOST_PER_SUFFIX and path.stat().st_size > 64:
            group.append(path)
    rounds = [group[turn] for turn in range(_MOST_PER_SUFFIX) for group in seen.values() if turn < len(group)]
    if len(rounds) < count:
        raise UsageError(f"this installation has only {len(rounds)} suitable files, the demo needs {count}")
    return rounds[:count]


def features(path: Path, config: dict[str, int]) -> npt.NDArray[np.int32]:
    """The bytes that the network looks at, shape (beg_size + end_size,), int32, padded with `padding_token`."""
    size, end, padding, block = (config[key] for key in ("beg_size", "end_size", "padding_token", "block_size"))
    data = path.read_bytes()
    head, tail = data[:block].lstrip()[:size], data[-block:].rstrip()[-end:]
    found = np.full(size + end, padding, dtype=np.int32)
    found[: len(head)] = np.frombuffer(head, dtype=np.uint8)
    if tail:
        found[-len(tail) :] = np.frombuffer(tail, dtype=np.uint8)
    return found


def _write_batches(files: list[Path], config: dict[str, int], folder: Path) -> None:
    for batch in range(_PAIRS):
        rows = [features(path, config) for path in files[batch * _BATCH : (batch + 1) * _BATCH]]
        np.savez(folder / f"files-{batch}.npz", bytes=np.stack(rows))


def _model_folder() -> Path:
    found = find_spec("magika")
    folders = sorted(Path(found.origin).parent.glob("models/*/model.onnx")) if found and found.origin else []
    if not folders:
        raise UsageError("the demo's model is not installed", hint="pip install 'tensorrt-tuner[demo]'")
    return folders[-1].parent


def _config(folder: Path) -> dict[str, int]:
    loaded: dict[str, int] = json.loads((folder / "config.min.json").read_text())
    return loaded
