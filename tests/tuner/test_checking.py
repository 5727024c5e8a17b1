"""The gate: every answer that a check can give, on landscapes made slower, wrong or unusable on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from objectives.backends import synthetic
from objectives.errors import BackendUnavailableError
from objectives.isolation import InProcess
from objectives.landscape import Fault, Interaction, SimulatedKnob
from objectives.outcome import Rejected
from storage.errors import NotFoundError
from tests import landscapes
from tests.conftest import Cli
from tests.tuner.released import NAME, QUIET, Released
from tuner import api, check_report, shipping
from tuner.check_answers import (
    CheckAnswer,
    CheckOptions,
    CheckResult,
    DefaultLatency,
    Recorded,
    State,
    default_question,
    faster_question,
    noise_margin,
)
from tuner.context import contexts
from tuner.errors import UsageError
from tuner.home import open_home
from tuner.migration import translate_partly
from tuner.objective import Objective
from tuner.spec import StudyOptions
from tuner.stats import Level, Noise, Verdict, VerdictKind

OPTIONS = CheckOptions(pairs=16)
WINNER = {"a": "v1", "b": "v1"}


Release = Callable[..., Released]


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return lambda landscape=None, confirm=True: Released(tmp_path, landscape or landscapes.small(**QUIET), confirm)


@pytest.fixture
def upgraded(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes the backend one of another version."""
    return lambda: monkeypatch.setattr(synthetic, "VERSION", "2")


def knobs(a: float = -0.2, b: float = -0.4) -> tuple[SimulatedKnob, ...]:
    return (landscapes.knob("a", a, 0.3), landscapes.knob("b", b))


def states(result: CheckResult) -> Sequence[str]:
    return [one.state.value for one in result.questions]


def test_nothing_has_changed(release: Release) -> None:
    study = release()
    before = study.stored()
    result = study.check()
    assert result.answer is CheckAnswer.STILL_FASTER
    assert result.passed
    assert states(result) == ["passed"] * 4
    assert result.verdict is not None
    assert result.recorded is not None
    assert result.verdict.speedup == pytest.approx(result.recorded.speedup, rel=0.02)
    assert result.default is not None
    assert result.default.here_ms == pytest.approx(result.default.recorded_ms, rel=0.02)
    assert result.how == "the engine that is kept"
    assert 8 <= result.n_pairs <= 16
    assert study.check(CheckOptions(pairs=16, require_faster=True)).passed
    assert study.stored() == before  # a check is no trial


def test_slower_than_recorded_but_still_faster(release: Release) -> None:
    study = release()
    study.change(knobs=knobs(b=-0.3))
    result = study.check()
    assert result.answer is CheckAnswer.SLOWER
    assert not result.passed
    assert states(result) == ["passed", "passed", "failed", "passed"]
    assert "slower than recorded" in result.question("faster").detail
    assert study.check(CheckOptions(pairs=16, max_regression=0.2)).passed


def test_the_advantage_is_gone(release: Release) -> None:
    study = release()
    study.change(knobs=knobs(a=0.0, b=0.0))
    result = study.check()
    assert result.answer is CheckAnswer.ADVANTAGE_GONE
    assert not result.passed  # slower than recorded by far more than 2 %
    assert study.check(CheckOptions(pairs=16, max_regression=0.9)).passed
    assert not study.check(CheckOptions(pairs=16, max_regression=0.9, require_faster=True)).passed


def test_the_default_has_regressed(release: Release) -> None:
    study = release()
    study.change(base_ms=1.3)
    result = study.check()
    assert result.answer is CheckAnswer.DEFAULT_REGRESSED
    assert states(result) == ["passed", "passed", "passed", "failed"]
    assert not result.passed
    assert study.check(CheckOptions(pairs=16, max_regression=0.5)).passed


def test_accuracy_is_broken(release: Release) -> None:
    study = release()
    study.change(interactions=(Interaction({"b": "v1"}, loss=0.5),))
    result = study.check()
    assert result.answer is CheckAnswer.ACCURACY_BROKEN
    assert states(result) == ["passed", "failed", "skipped", "skipped"]
    assert not result.passed
    assert result.n_pairs == 0


def test_an_engine_that_is_damaged_gone_or_fails(release: Release) -> None:
    study = release()
    study.change(interactions=(Interaction({"b": "v1"}, fault=Fault.RUN_FAILED),))
    failing = study.check()
    kept = next(one for one in shipping.list_engines(NAME, storage=study.url) if one.record.manifest.get("confirmed"))
    kept.path.write_bytes(kept.path.read_bytes() + b" ")
    damaged = study.check()
    kept.path.unlink()
    gone = study.check()
    for result, words in ((failing, "run_failed"), (damaged, "not what was built"), (gone, "is gone")):
        assert result.answer is CheckAnswer.CANNOT_LOAD
        assert states(result) == ["failed", "skipped", "skipped", "skipped"]
        assert words in result.question("loads").detail
        assert not result.passed


def test_too_noisy_to_tell(release: Release) -> None:
    study = release()
    study.change(knobs=knobs(a=0.0, b=-0.01), load_noise=0.4)

    def first_undecided(**options: Any) -> CheckResult:
        # One check in twenty errs, as its confidence says; four in a row do not.
        checks = (study.check(CheckOptions(pairs=8, max_regression=0.5, **options)) for _ in range(4))
        return next(one for one in checks if one.verdict and one.verdict.kind is VerdictKind.UNDECIDED)

    result = first_undecided()
    assert result.answer is CheckAnswer.UNDECIDED
    assert result.passed
    assert result.question("faster").state is State.UNDECIDED
    assert first_undecided(require_faster=True).question("faster").state is not State.PASSED
    assert study.check(CheckOptions(timeout_s=1e-9)).question("faster").state is State.UNDECIDED
    assert not study.check(CheckOptions(timeout_s=1e-9, require_faster=True)).passed


def test_another_version_and_still_faster(release: Release, upgraded: Callable[[], None]) -> None:
    study = release()
    before = study.stored()
    upgraded()
    result = study.check()
    assert result.answer is CheckAnswer.STILL_FASTER
    assert result.passed
    assert "built again" in result.how
    assert result.recorded is None  # what it was worth there is no promise here
    assert result.default is not None  # the same device: the default is compared with the last release's
    assert "synthetic 1" in result.default.recorded_in
    assert "synthetic 2" in result.environment
    assert study.stored() == before


def test_another_version_and_the_advantage_is_gone(release: Release, upgraded: Callable[[], None]) -> None:
    study = release()
    upgraded()
    study.change(knobs=knobs(a=0.0, b=0.0))
    result = study.check()
    assert result.answer is CheckAnswer.ADVANTAGE_GONE
    assert result.passed
    assert not study.check(CheckOptions(pairs=16, require_faster=True)).passed
    study.change(knobs=knobs(a=0.0, b=0.2))
    assert not study.check().passed  # slower than the default


def test_another_version_and_the_default_has_regressed(release: Release, upgraded: Callable[[], None]) -> None:
    study = release()
    upgraded()
    study.change(base_ms=1.2)
    assert study.check().answer is CheckAnswer.DEFAULT_REGRESSED


def test_another_version_and_accuracy_is_broken(release: Release, upgraded: Callable[[], None]) -> None:
    study = release()
    upgraded()
    study.change(interactions=(Interaction(WINNER, loss=0.5),))
    assert study.check().answer is CheckAnswer.ACCURACY_BROKEN
    study.change(interactions=(Interaction(WINNER, fault=Fault.BUILD_FAILED),))
    assert study.check().answer is CheckAnswer.CANNOT_LOAD


def test_another_version_and_the_default_is_broken(release: Release, upgraded: Callable[[], None]) -> None:
    study = release()
    upgraded()
    study.change(interactions=(Interaction({"b": "v0"}, loss=0.5),))
    result = study.check()
    assert result.answer is CheckAnswer.DEFAULT_BROKEN
    assert states(result) == ["passed", "passed", "skipped", "failed"]
    assert not result.passed


def test_changes_that_do_not_exist_in_another_version(release: Release, upgraded: Callable[[], None]) -> None:
    study = release()
    upgraded()
    study.change(knobs=(landscapes.knob("b", -0.4),))
    result = study.check()
    assert result.answer is CheckAnswer.STILL_FASTER
    assert result.lost == ("a=v1",)
    study.change(knobs=(landscapes.knob("c", -0.4),))
    result = study.check()
    assert result.answer is CheckAnswer.ADVANTAGE_GONE
    assert result.lost == ("a=v1", "b=v1")
    assert result.passed
    assert not study.check(CheckOptions(require_faster=True)).passed


def test_another_machine_is_not_compared_in_milliseconds(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    study = release()
    monkeypatch.setattr("platform.machine", lambda: "another")
    study.change(base_ms=5.0)
    result = study.check()
    assert result.answer is CheckAnswer.STILL_FASTER
    assert result.question("default").state is State.SKIPPED
    assert "nothing is recorded of this device" in result.question("default").detail
    assert result.passed


def test_a_best_that_was_not_confirmed_and_is_not_kept_is_built_again(release: Release) -> None:
    study = release(confirm=False)
    kept = study.check()
    assert kept.answer is CheckAnswer.STILL_FASTER
    assert kept.recorded is None  # the best of many noisy numbers is no promise
    with open_home(study.url) as home:
        shipping.engines.drop_all(home, contexts(home, NAME)[-1])
    result = study.check()
    assert result.answer is CheckAnswer.STILL_FASTER
    assert "is not kept" in result.how


def test_a_side_that_does_not_run_in_a_pair(release: Release) -> None:
    study = release()

    class BrokenSide(InProcess):
        """Opens nothing but engines of the default, or nothing else than those."""

        baseline_breaks = True

        def open(self, request: Any) -> Any:
            if (request.values == {"a": "v0", "b": "v0"}) is self.baseline_breaks:
                study.change(interactions=(Interaction({}, fault=Fault.FALLBACK),))
                try:
                    return super().open(request)
                finally:
                    study.change(interactions=())
            return super().open(request)

    assert study.check(fresh=BrokenSide).answer is CheckAnswer.DEFAULT_BROKEN
    BrokenSide.baseline_breaks = False
    result = study.check(fresh=BrokenSide)
    assert result.answer is CheckAnswer.CANNOT_LOAD
    assert "fallback" in result.question("loads").detail


def test_what_cannot_be_checked(tmp_path: Path, release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path / 'tuner.db'}"
    model = landscapes.small().save(tmp_path / "model.json")
    api.create_study("new", model, StudyOptions(backend="synthetic"), storage=url)
    api.create_study("small", model, StudyOptions(backend="synthetic", objective=Objective.ENGINE_SIZE), storage=url)
    from tuner import check_study

    with pytest.raises(NotFoundError, match="has not been run"):
        check_study("new", storage=url)
    with pytest.raises(UsageError, match="no speed to check"):
        check_study("small", storage=url)
    with pytest.raises(NotFoundError, match="no study"):
        check_study("nobody", storage=url)
    study = release(landscapes.small(knobs=(landscapes.knob("a", 0.5),), **QUIET), confirm=False)
    with pytest.raises(UsageError, match="nothing to check"):
        study.check()
    monkeypatch.setattr(synthetic.SyntheticBackend, "cannot_run", lambda self: "no device")
    with pytest.raises(BackendUnavailableError, match="no device"):
        study.check()


@pytest.mark.parametrize(
    "wrong",
    [{"max_regression": -0.1}, {"max_regression": 1.0}, {"pairs": 7}, {"builds": 3}, {"builds": 0}, {"timeout_s": 0.0}],
)
def test_options_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        CheckOptions(**wrong)


def verdict(speedup: float, low: float, high: float, kind: VerdictKind = VerdictKind.FASTER) -> Verdict:
    return Verdict("c", kind, speedup, low, high, 24, 0.95, 0.001, "the interval contains +1.00%")


def test_slower_than_recorded_means_beyond_doubt() -> None:
    recorded = Recorded(1.40, 1.38, 1.42)
    passing = verdict(1.36, 1.34, 1.38)
    assert faster_question(passing, recorded, CheckOptions())[1] is CheckAnswer.STILL_FASTER
    assert faster_question(verdict(1.30, 1.29, 1.31), recorded, CheckOptions())[1] is CheckAnswer.SLOWER
    # The default's own file may be a lucky build: then the same figures prove nothing.
    assert faster_question(verdict(1.30, 1.29, 1.31), recorded, CheckOptions(), 0.1)[1] is CheckAnswer.STILL_FASTER
    early = verdict(1.1, 0.0, float("inf"), VerdictKind.UNDECIDED)
    assert faster_question(early, recorded, CheckOptions())[1] is CheckAnswer.UNDECIDED


def test_faster_by_less_than_what_matters_is_faster_all_the_same() -> None:
    found = verdict(1.012, 1.004, 1.02, VerdictKind.UNDECIDED)
    assert faster_question(found, None, CheckOptions(require_faster=True))[0].forbidden is False
    found = verdict(1.003, 1.001, 1.005, VerdictKind.NOT_FASTER)
    assert faster_question(found, None, CheckOptions())[1] is CheckAnswer.ADVANTAGE_GONE


def test_noise_is_no_regression_of_the_default() -> None:
    level = Level(0.01, 5)
    assert noise_margin(Noise(Level(0.0, 9), level, Level(0.0, 0))) == pytest.approx(0.0287, abs=1e-4)
    assert noise_margin(None) > 0.05
    assert not default_question(DefaultLatency(1.04, 1.0, 0.03, "context 1"), CheckOptions())[1]
    assert default_question(DefaultLatency(1.06, 1.0, 0.03, "context 1"), CheckOptions())[1]


def test_translation_by_name() -> None:
    old, new = landscapes.small().space(), landscapes.small(knobs=(landscapes.knob("b", -0.1),)).space()
    assert translate_partly(old.candidate(WINNER), old, new) == (new.candidate({"b": "v1"}), ("a=v1",))


def test_reports(release: Release) -> None:
    study = release()
    study.change(interactions=(Interaction({"b": "v1"}, loss=0.5),))
    result = study.check()
    suite = ElementTree.fromstring(check_report.junit(result))[0]
    cases = {case.attrib["name"]: case for case in suite.iter("testcase")}
    assert list(cases) == ["loads", "accuracy", "faster", "default"]
    assert (suite.attrib["tests"], suite.attrib["failures"], suite.attrib["skipped"]) == ("4", "1", "2")
    assert cases["accuracy"].find("failure") is not None
    assert cases["faster"].find("skipped") is not None
    assert cases["loads"].find("system-out") is not None
    text = check_report.markdown(result)
    assert "accuracy broken (FAIL)" in text
    assert text.count("\n| ") == 5
    assert check_report.lines(result)[-1] == "the gate forbids it"
    told = check_report.to_json(result)
    assert told["passed"] is False
    assert json.loads(json.dumps(told, allow_nan=False))["answer"] == "accuracy broken"


def test_words_of_a_library_do_not_break_the_reports(release: Release) -> None:
    study = release()

    class Strange(InProcess):
        def check(self, request: Any) -> Any:
            found = super().check(request)
            return Rejected(found.trace, found.accuracy, "\x1b[31m<b>|`bad`\x00|\nnext ]]> & line")

    result = study.check(fresh=Strange)
    ElementTree.fromstring(check_report.junit(result))
    row = next(line for line in check_report.markdown(result).splitlines() if line.startswith("| accuracy"))
    assert "\\<b\\>\\|" in row


def test_command(tmp_path: Path, cli: Cli) -> None:
    study = Released(tmp_path, landscapes.small(**QUIET))
    junit, markdown = tmp_path / "check.xml", tmp_path / "check.md"
    words = ("check", NAME, "--storage", study.url, "--pairs", "8")
    ended = cli(*words, "--junit", junit, "--markdown", markdown, "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["answer"] == "still faster"
    assert ElementTree.parse(junit).getroot()[0].attrib["failures"] == "0"
    assert "still faster (pass)" in markdown.read_text()
    study.change(base_ms=2.0)
    ended = cli(*words)
    assert ended.code == 1
    assert "default regressed" in ended.out
    for wrong in (
        ("nobody",),
        (NAME, "--pairs", "2"),
        (NAME, "--max-regression", "much"),
        (NAME, "--junit", tmp_path / "nowhere" / "x.xml"),
        (NAME, "--timeout", "soon"),
    ):
        ended = cli("check", *wrong, "--storage", study.url)
        assert ended.code == 2, wrong
        assert "hint" in ended.err
