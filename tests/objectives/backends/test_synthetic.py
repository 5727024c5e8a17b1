"""The synthetic backend passes the contract, keeps to its landscape, and goes wrong in each way that it is told to."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from objectives.backends.base import Backend, Session
from objectives.backends.synthetic import SyntheticBackend
from objectives.errors import CandidateError, HarnessError, KnobError, ModelError, WorkloadError
from objectives.landscape import Fault, Interaction, Landscape, SimulatedKnob
from objectives.outcome import FailureKind
from objectives.tensors import Array
from tests.contracts.backend_contract import BackendContract

MODE = SimulatedKnob("mode", ("plain", "fast", "faulty"), "plain", {"fast": -0.7})
SIZE = SimulatedKnob("size", ("s", "l"), "s", {"l": 0.3})
X = np.linspace(-1, 1, 8).astype(np.float32)
BACKEND = SyntheticBackend()


class TestSyntheticContract(BackendContract):
    @pytest.fixture
    def backend(self) -> Backend:
        return SyntheticBackend()

    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        unsupported = Interaction({"mode": "faulty"}, fault=Fault.UNSUPPORTED)
        return Landscape((MODE, SIZE), interactions=(unsupported,)).save(tmp_path / "landschaft ü.json")

    @pytest.fixture
    def inputs(self) -> dict[str, Array]:
        return {"x": X}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def opened(landscape: Landscape, folder: Path, **values: str) -> Session:
    path = landscape.save(folder.parent / "landscape.json")
    return BACKEND.open(BACKEND.build(path, values, folder), values)


def latency_ms(landscape: Landscape, folder: Path, repeats: int = 1, **values: str) -> float:
    with opened(landscape, folder, **values) as session:
        session.bind({"x": X})
        return session.measure(repeats) * 1e3 / repeats


QUIET = Landscape((MODE, SIZE), base_ms=2.0, noise=0.0, repeatable=True)


class TestLatency:
    @pytest.mark.parametrize("repeats", [1, 7])
    def test_it_is_the_landscapes(self, repeats: int, folder: Path) -> None:
        assert latency_ms(QUIET, folder, repeats) == pytest.approx(2.0)
        assert latency_ms(QUIET, folder, repeats, mode="fast", size="l") == pytest.approx(2.0 * math.exp(-0.7 + 0.3))

    def test_noise_has_the_size_that_was_asked_for(self, folder: Path) -> None:
        with opened(Landscape((MODE,), noise=0.05, repeatable=True), folder) as session:
            session.bind({"x": X})
            logs = np.log([session.measure(1) for _ in range(2000)])
        assert logs.std() == pytest.approx(0.05, rel=0.1)
        assert logs.mean() == pytest.approx(math.log(1e-3), abs=0.01)

    def test_repeatable_noise_is_a_matter_of_the_candidate(self, folder: Path) -> None:
        def series(seed: int, **values: str) -> list[float]:
            landscape = Landscape((MODE, SIZE), noise=0.1, load_noise=0.1, build_noise=0.1, seed=seed, repeatable=True)
            with opened(landscape, folder, **values) as session:
                session.bind({"x": X})
                return [session.measure(1) for _ in range(5)]

        assert series(0) == series(0)
        assert series(0) != series(1)
        assert series(0, size="l") != [one * math.exp(0.3) for one in series(0)]

    @pytest.mark.parametrize("source", ["load_noise", "build_noise"])
    def test_chance_differs_by_build_or_by_load(self, source: str, folder: Path) -> None:
        landscape = Landscape((MODE,), noise=0.0, **{source: 0.2})
        path = landscape.save(folder.parent / "landscape.json")
        engine = BACKEND.build(path, {}, folder)

        def once(rebuild: bool) -> float:
            with BACKEND.open(BACKEND.build(path, {}, folder) if rebuild else engine, {}) as session:
                session.bind({"x": X})
                return session.measure(1)

        same_build, rebuilt = ({once(again) for _ in range(5)} for again in (False, True))
        assert len(rebuilt) == 5
        assert len(same_build) == (5 if source == "load_noise" else 1)


class TestAnswers:
    def test_twice_and_one(self, folder: Path) -> None:
        with opened(QUIET, folder) as session:
            assert session.run({"x": X})["y"].tolist() == (2 * X + 1).tolist()
        assert BACKEND.reference(folder.parent / "landscape.json", {"x": X})["y"].tolist() == (2 * X + 1).tolist()

    def test_off_by_the_loss(self, folder: Path) -> None:
        landscape = Landscape((MODE,), interactions=(Interaction({"mode": "fast"}, loss=0.25),))
        with opened(landscape, folder, mode="fast") as session:
            assert session.run({"x": X})["y"] == pytest.approx((2 * X + 1) * 1.25)

    @pytest.mark.parametrize("inputs", [{}, {"z": X}, {"x": X, "z": X}, {"x": X[:4]}])
    def test_other_inputs_are_refused(self, inputs: dict[str, Array], folder: Path) -> None:
        QUIET.save(folder.parent / "landscape.json")
        with pytest.raises(WorkloadError):
            BACKEND.reference(folder.parent / "landscape.json", inputs)

    def test_measuring_needs_inputs(self, folder: Path) -> None:
        with opened(QUIET, folder) as session, pytest.raises(HarnessError):
            session.measure(1)


def faulty(fault: Fault) -> Landscape:
    return Landscape((MODE,), interactions=(Interaction({"mode": "faulty"}, fault=fault),))


class TestFaults:
    """Those that do not end the process; the others are in the tests of the isolation."""

    @pytest.mark.parametrize(
        ("fault", "kind"),
        [
            (Fault.UNSUPPORTED, FailureKind.UNSUPPORTED),
            (Fault.BUILD_FAILED, FailureKind.BUILD_FAILED),
            (Fault.FALLBACK, FailureKind.FALLBACK),
        ],
    )
    def test_no_engine(self, fault: Fault, kind: FailureKind, folder: Path) -> None:
        with pytest.raises(CandidateError) as error:
            opened(faulty(fault), folder, mode="faulty")
        assert error.value.kind == kind

    def test_no_run(self, folder: Path) -> None:
        with opened(faulty(Fault.RUN_FAILED), folder, mode="faulty") as session, pytest.raises(CandidateError):
            session.run({"x": X})
        with opened(faulty(Fault.MEMORY_ERROR), folder, mode="faulty") as session, pytest.raises(MemoryError):
            session.run({"x": X})

    @pytest.mark.parametrize(
        ("fault", "form"),
        [
            (Fault.NAN, {"y": ((8,), "float32", 1)}),
            (Fault.WRONG_SHAPE, {"y": ((7,), "float32", 0)}),
            (Fault.WRONG_TYPE, {"y": ((8,), "float64", 0)}),
            (Fault.MISSING_OUTPUT, {}),
        ],
    )
    def test_wrong_outputs(self, fault: Fault, form: dict[str, object], folder: Path) -> None:
        with opened(faulty(fault), folder, mode="faulty") as session:
            found = session.run({"x": X})
        assert {n: (a.shape, a.dtype.name, int(np.isnan(a).sum())) for n, a in found.items()} == form

    @pytest.mark.parametrize("fault", Fault)
    def test_other_candidates_are_whole(self, fault: Fault, folder: Path) -> None:
        with opened(faulty(fault), folder, mode="fast") as session:
            assert session.run({"x": X})["y"].tolist() == (2 * X + 1).tolist()


def test_what_is_no_landscape_is_a_model_error(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x08\x08\x12\x05")
    for path in (tmp_path / "m.onnx", tmp_path / "missing", tmp_path):
        with pytest.raises(ModelError):
            BACKEND.describe(path)


def test_a_knob_whose_default_is_no_value_is_refused(tmp_path: Path) -> None:
    path = Landscape((SimulatedKnob("a", ("x", "y"), "z"),)).save(tmp_path / "l.json")
    with pytest.raises(KnobError):
        BACKEND.knobs(path, BACKEND.describe(path))


def test_the_identity_is_the_files_content(tmp_path: Path) -> None:
    one = BACKEND.describe(QUIET.save(tmp_path / "a.json"))
    two = BACKEND.describe(QUIET.save(tmp_path / "b.json"))
    other = BACKEND.describe(faulty(Fault.NAN).save(tmp_path / "c.json"))
    assert one.digest == two.digest != other.digest
    assert (one.name, one.format) == ("a", "landscape")
