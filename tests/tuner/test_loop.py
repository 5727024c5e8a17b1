"""The loop: every fault is one outcome, budgets are met, and what is recorded stays whatever breaks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from objectives.errors import HarnessError
from objectives.isolation import Subprocess
from objectives.knobs import Candidate
from objectives.landscape import Fault, Landscape
from objectives.outcome import Stage
from storage import trials as table
from storage.studies import get_study, replace_spec
from tests import landscapes
from tests.conftest import Cli, start_tuner
from tests.tuner.conftest import SHOWCASE, MakeStudy, Study, make_study
from tuner import lanes
from tuner.api import run_study, show_study
from tuner.context import Context
from tuner.home import open_home
from tuner.ledger import Trial
from tuner.owner import this_process
from tuner.progress import Progress
from tuner.results import Summary
from tuner.searching import Searching
from tuner.spec import Budget

# Fault, status in `study show`, what its reason says.
FAULTS = [
    (Fault.UNSUPPORTED, "unsupported", ["not supported"]),
    (Fault.BUILD_FAILED, "build failed", ["no implementation found for node 7"]),
    (Fault.BUILD_CRASH, "crashed", ["SIGSEGV", "build"]),
    (Fault.FALLBACK, "fallback", ["asked for one thing, got another"]),
    (Fault.SEGFAULT, "crashed", ["SIGSEGV", "check"]),
    (Fault.ABORT, "crashed", ["SIGABRT", "check"]),
    (Fault.EXIT, "crashed", ["exit code 3", "check"]),
    (Fault.HANG, "timed out", ["deadline", "check"]),
    (Fault.EAT_MEMORY, "out of memory", ["memory limit", "check"]),
    (Fault.MEMORY_ERROR, "out of memory", ["cannot allocate 1.0 TiB"]),
    (Fault.RUN_FAILED, "run failed", ["kernel launch failed"]),
    (Fault.NAN, "wrong output", ["not finite", "'y'", "random-0", "[3]"]),
    (Fault.WRONG_SHAPE, "wrong output", ["shape [7]", "[8]", "'y'"]),
    (Fault.WRONG_TYPE, "wrong output", ["float64", "float32", "'y'"]),
    (Fault.MISSING_OUTPUT, "wrong output", ["missing", "'y'"]),
]


def trials_of(study: Study) -> tuple[Trial, ...]:
    """The finished trials of the latest context."""
    return show_study(study.name, storage=study.url).contexts[-1].trials


def optuna_trials(study: Study) -> list[optuna.trial.FrozenTrial]:
    """The trials of the latest context's Optuna study."""
    name = show_study(study.name, storage=study.url).contexts[-1].context.name
    storage = optuna.storages.RDBStorage(study.url)
    found = optuna.load_study(study_name=name, storage=storage).get_trials()
    storage.engine.dispose()
    return found


class Notes(Progress):
    """Keeps what a run tells."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.reason = ""
        self.context: Context | None = None

    def on_start(self, context: Context, budget: Budget, summary: Summary) -> None:
        self.context = context
        self.events.append(("start", summary.n_trials))

    def on_propose(self, number: int, candidate: Candidate) -> None:
        self.events.append(("propose", number))

    def on_stage(self, stage: Stage, detail: str) -> None:
        self.events.append(("stage", stage))

    def on_trial(self, trial: Trial, summary: Summary) -> None:
        self.events.append(("trial", trial.number))

    def on_end(self, reason: str, summary: Summary) -> None:
        self.reason = reason


# ---- every way to go wrong


in_faults = pytest.mark.xdist_group("faults")  # one worker makes the study that these tests look at


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, subprocess.CompletedProcess[str]]:
    """A study whose every candidate but the default has a fault of its own, run to its end as a user would."""
    limits = {"trial_timeout_s": 8.0, "memory_bytes": 600 << 20}
    study = make_study(tmp_path_factory.mktemp("faulty"), landscapes.faulty(), budget=Budget(len(Fault) + 1), **limits)
    with start_tuner(*study.search) as process:
        out, err = process.communicate()
    return study, subprocess.CompletedProcess([], process.returncode, out, err)


def _of_fault(study: Study, fault: Fault) -> Trial:
    (found,) = [one for one in trials_of(study) if dict(one.candidate.changes).get(landscapes.FAULT_KNOB) == fault]
    return found


def test_every_fault_is_listed() -> None:
    assert {fault for fault, *_ in FAULTS} == set(Fault)


@in_faults
def test_a_study_of_faults_ends_as_any_other(faulty: tuple[Study, subprocess.CompletedProcess[str]]) -> None:
    study, ended = faulty
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr
    assert f"done: all {len(Fault) + 1} trials are done" in ended.stderr
    assert [trial.number for trial in trials_of(study)] == list(range(len(Fault) + 1))
    assert "1 feasible, 4 rejected, 11 failed" in ended.stdout


@in_faults
@pytest.mark.parametrize(("fault", "status", "words"), FAULTS, ids=[fault for fault, *_ in FAULTS])
def test_a_fault_is_one_outcome_with_its_reason(
    faulty: tuple[Study, subprocess.CompletedProcess[str]], cli: Cli, fault: Fault, status: str, words: list[str]
) -> None:
    study, _ = faulty
    trial = _of_fault(study, fault)
    assert trial.status == status
    shown = cli("study", "show", *study.at)
    (line,) = [line for line in shown.out.splitlines() if f"{landscapes.FAULT_KNOB}={fault} " in line]
    assert status in line
    assert [word for word in words if word not in line] == []


@in_faults
def test_memory_is_given_a_second_chance_and_nothing_else_is(
    faulty: tuple[Study, subprocess.CompletedProcess[str]],
) -> None:
    attempts = {fault: _of_fault(faulty[0], fault).outcome.trace.attempts for fault in Fault}
    assert {fault for fault, count in attempts.items() if count == 2} == {Fault.EAT_MEMORY, Fault.MEMORY_ERROR}
    assert {fault for fault, count in attempts.items() if count == 1} == {*Fault} - {
        Fault.EAT_MEMORY,
        Fault.MEMORY_ERROR,
    }


@in_faults
def test_optuna_learns_from_every_fault(faulty: tuple[Study, subprocess.CompletedProcess[str]]) -> None:
    told = optuna_trials(faulty[0])
    assert len(told) == len(Fault) + 1
    assert {trial.state for trial in told} == {optuna.trial.TrialState.COMPLETE}
    assert [trial.params[landscapes.FAULT_KNOB] for trial in told if max(trial.constraints.values()) <= 0] == ["none"]


# ---- the default first, and what it must do


def test_the_default_is_tried_first_and_events_come_in_order(created: Study) -> None:
    notes = Notes()
    run_study(created.name, storage=created.url, progress=notes)
    assert trials_of(created)[0].candidate.is_baseline
    assert trials_of(created)[0].source == "baseline"
    stages = [("stage", stage) for stage in (Stage.BUILD, Stage.OPEN, Stage.CHECK, Stage.TIME)]
    assert notes.events[:7] == [("start", 0), ("propose", 0), *stages, ("trial", 0)]
    assert [event[1] for event in notes.events if event[0] == "trial"] == list(range(6))


def test_the_best_feasible_candidate_is_found(finished: Study) -> None:
    best, latency_ms = SHOWCASE.best(max_loss=0.01)
    summary = show_study(finished.name, storage=finished.url).contexts[0].summary
    assert summary.best is not None
    assert summary.best.candidate == best
    assert summary.best.throughput == pytest.approx(1e3 / latency_ms, rel=0.01)
    assert summary.speedup == pytest.approx(SHOWCASE.base_ms / latency_ms, rel=0.01)
    assert (summary.feasible, summary.rejected, dict(summary.failed)) == (3, 1, {"build_failed": 2})


@pytest.mark.parametrize("n_trials", [1, 6])
@pytest.mark.parametrize(
    ("change", "words", "remedy"),
    [
        ({"fault": Fault.RUN_FAILED}, "kernel launch failed", "--trial-timeout"),
        ({"loss": 0.5}, "rel_l2", "--max-loss"),
        ({"fault": Fault.NAN}, "not finite", ""),
    ],
    ids=["failed", "inaccurate", "nan"],
)
def test_a_default_that_cannot_be_measured_stops_the_study(
    new_study: MakeStudy, cli: Cli, change: dict[str, Any], words: str, remedy: str, n_trials: int
) -> None:
    study = new_study(landscapes.broken_default(**change), budget=Budget(n_trials))
    for _ in range(2):  # and again: nothing has changed
        ended = cli(*study.search)
        assert ended.code == 1
        assert "the default cannot be measured" in ended.err
        assert words in ended.err
        assert "hint: " in ended.err
        assert remedy in ended.err.split("hint: ")[1]
    (trial,) = trials_of(study)
    assert words in trial.outcome.reason  # type: ignore[union-attr]
    shown = cli("study", "show", *study.at)
    assert shown.code == 0
    assert words in shown.out
    assert cli("study", "best", *study.at).code == 0


# ---- budgets and resume


def test_a_budget_of_trials_is_met_exactly_and_can_be_raised(new_study: MakeStudy, cli: Cli) -> None:
    study = new_study(landscapes.wide(), budget=Budget(4))
    assert cli(*study.search).code == 0
    first = trials_of(study)
    assert [trial.number for trial in first] == [0, 1, 2, 3]
    again = cli(*study.search)
    assert again.code == 0
    assert trials_of(study) == first
    raised = cli(*study.search, "--n-trials", "9")
    assert raised.code == 0
    assert "going on after 4 trials" in raised.err
    assert trials_of(study)[:4] == first
    assert [trial.number for trial in trials_of(study)] == list(range(9))
    assert len({trial.candidate for trial in trials_of(study)}) == 9
    assert show_study(study.name, storage=study.url).spec.budget == Budget(9)
    # A later run without a budget keeps the raised one.
    assert cli(*study.search).code == 0
    assert len(trials_of(study)) == len(optuna_trials(study)) == 9


def test_a_budget_of_time_ends_with_the_trial_that_uses_it_up(new_study: MakeStudy, cli: Cli) -> None:
    study = new_study(landscapes.wide(build_s=0.05), budget=Budget(None, 0.4))
    ended = cli(*study.search)
    assert ended.code == 0
    assert "time budget" in ended.err
    spent = [trial.spent_s for trial in trials_of(study)]
    assert sum(spent[:-1]) < 0.4 <= sum(spent)
    # Spent is spent: another run has nothing left.
    assert cli(*study.search).code == 0
    assert len(trials_of(study)) == len(spent)


@pytest.mark.parametrize("search", ["tpe", "auto", "nsgaii", "mixed"])
def test_a_resumed_study_finds_what_an_uninterrupted_one_finds(
    new_study: MakeStudy, tmp_path: Path, search: str
) -> None:
    # The search depends on what was seen, not on how often the process was started.
    whole = new_study(landscapes.wide(), budget=Budget(14), search=search)
    run_study(whole.name, storage=whole.url)
    (tmp_path / "parts").mkdir()
    parts = make_study(tmp_path / "parts", landscapes.wide(), budget=Budget(1), search=search)
    for n_trials in (1, 5, 14):
        run_study(parts.name, storage=parts.url, budget=Budget(n_trials))
    assert [trial.candidate for trial in trials_of(parts)] == [trial.candidate for trial in trials_of(whole)]


@pytest.mark.parametrize("search", ["tpe", "auto", "full"])
def test_a_space_that_is_used_up_ends_the_study(new_study: MakeStudy, cli: Cli, search: str) -> None:
    study = new_study(landscapes.small(), budget=Budget(50), search=search)
    ended = cli(*study.search)
    assert ended.code == 0
    assert "done: all 6 candidates have been tried" in ended.err
    assert len({trial.candidate for trial in trials_of(study)}) == 6
    assert cli(*study.search).code == 0
    assert len(trials_of(study)) == 6


def test_a_sweep_ends_when_its_list_does(new_study: MakeStudy, cli: Cli) -> None:
    study = new_study(landscapes.wide(), budget=Budget(50), search="fast")
    for _ in range(2):
        ended = cli(*study.search)
        assert ended.code == 0
        assert "done: the sweep of `fast` is done" in ended.err
        assert len(trials_of(study)) == 1 + 4 * 3


def test_mixed_goes_on_with_what_was_faster(new_study: MakeStudy) -> None:
    study = new_study(landscapes.wide(), budget=Budget(400), search="mixed")
    run_study(study.name, storage=study.url)
    trials = trials_of(study)
    # Of each of the four knobs one value is faster, so that phase 2 is everything.
    assert len(trials) == 4**4
    assert all(len(trial.candidate.changes) == 1 for trial in trials[1:13])


def _flat() -> Landscape:
    """Ten knobs that do nothing."""
    return Landscape(tuple(landscapes.knob(f"k{index}", 0.0, 0.0) for index in range(10)), noise=0.003)


def test_a_search_that_is_not_worth_it_ends_by_itself_and_goes_on_when_told(new_study: MakeStudy, cli: Cli) -> None:
    study = new_study(_flat(), budget=Budget(60), search="auto", early_end=True)
    ended = cli(*study.search)
    assert ended.code == 0
    assert "done: not worth it: " in ended.err
    assert "--no-early-end" in ended.err
    n_trials = len(trials_of(study))
    assert n_trials < 60
    # Nothing has changed, so nothing is tried; and a raised budget is no new evidence.
    assert "done: not worth it: " in cli(*study.search).err
    assert "done: not worth it: " in cli(*study.search, "--n-trials", "70").err
    assert len(trials_of(study)) == n_trials
    more = cli(*study.search, "--n-trials", str(n_trials + 2), "--no-early-end")
    assert f"done: all {n_trials + 2} trials are done" in more.err
    assert not show_study(study.name, storage=study.url).spec.early_end


def test_a_study_can_be_made_without_an_early_end(new_study: MakeStudy, cli: Cli) -> None:
    study = new_study(_flat(), budget=Budget(60), search="auto", early_end=False)
    ended = cli(*study.search)
    assert "not worth going on" in ended.err
    assert "done: all 60 trials are done" in ended.err


def test_a_search_is_told_what_other_processes_are_at_work_on(created: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    run_study(created.name, storage=created.url, budget=Budget(1))
    with open_home(created.url) as home:
        context = show_study(created.name, storage=created.url).contexts[-1].context
        elsewhere = Candidate((("a", "v1"),))
        record = table.propose(
            home.database, context.id, elsewhere.changes, elsewhere.digest, "tpe", this_process(), None
        )
    assert record is not None
    told: list[list[Candidate]] = []
    real = Searching.next

    def spy(self: Searching, tried: Any, pending: Any) -> Any:
        told.append(list(pending))
        return real(self, tried, pending)

    monkeypatch.setattr(Searching, "next", spy)
    monkeypatch.setattr(table, "reclaim", lambda *_: [])  # its owner is alive: it is this process
    run_study(created.name, storage=created.url, budget=Budget(4))
    assert told[0] == [elsewhere]


def test_limits_changed_in_the_study_are_a_new_context(finished: Study) -> None:
    with open_home(finished.url) as home:
        spec = dict(get_study(home.database, finished.name).spec)
        spec["judging"] = {**spec["judging"], "limits": [{"metric": "rel_l2", "limit": 0.9, "output": None}]}
        replace_spec(home.database, finished.name, spec)
    notes = Notes()
    run_study(finished.name, storage=finished.url, progress=notes)
    assert notes.context is not None
    assert notes.context.opened_because == "limits or data changed"
    first, second = show_study(finished.name, storage=finished.url).contexts
    assert (len(first.trials), len(second.trials)) == (6, 6)
    assert second.summary.feasible == 4


# ---- engines


def test_the_engines_of_default_and_best_are_kept_and_no_others(finished: Study) -> None:
    by_candidate = {str(trial.candidate): trial.engine_digest for trial in trials_of(finished)}
    summary = show_study(finished.name, storage=finished.url).contexts[0].summary
    assert summary.best is not None
    kept = {by_candidate["default"], by_candidate[str(summary.best.candidate)]}
    assert {path.name for path in (finished.artifacts / "engines").iterdir()} == kept


def test_no_scratch_is_left(finished: Study) -> None:
    assert {path.name for path in finished.artifacts.iterdir()} == {"models", "tensors", "engines", "optuna"}


# ---- a broken harness


@pytest.fixture
def break_evaluation(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Let evaluations with these numbers (from 1) raise HarnessError; gives the list of all that were asked for."""
    monkeypatch.setattr(lanes, "_HARNESS_PAUSE_S", 0.0)

    def apply(*broken: int) -> list[int]:
        calls: list[int] = []
        evaluate = Subprocess.evaluate

        def sometimes(self: Subprocess, *arguments: Any) -> Any:
            calls.append(len(calls) + 1)
            if calls[-1] in broken:
                raise HarnessError("the pipe broke")
            return evaluate(self, *arguments)

        monkeypatch.setattr(Subprocess, "evaluate", sometimes)
        return calls

    return apply


def test_a_harness_error_is_tried_again(created: Study, break_evaluation: Callable[..., list[int]]) -> None:
    calls = break_evaluation(1, 2, 5)
    summary = run_study(created.name, storage=created.url)
    assert summary.n_trials == 6
    assert len(calls) == 6 + 3
    assert len(optuna_trials(created)) == 6


def test_a_harness_that_stays_broken_stops_the_study_and_nothing_is_lost(
    created: Study, cli: Cli, break_evaluation: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_evaluation(4, 5, 6)
    ended = cli(*created.search)
    assert ended.code == 1
    assert "the pipe broke" in ended.err
    assert "hint: " in ended.err
    assert "Traceback" not in ended.err
    before = trials_of(created)
    assert [trial.number for trial in before] == [0, 1, 2]
    shown = json.loads(cli("study", "show", *created.at, "--json").out)["contexts"][0]
    assert [one["number"] for one in shown["unfinished"]] == [3]
    assert {path.name for path in created.artifacts.iterdir()} == {"models", "tensors", "engines", "optuna"}
    monkeypatch.undo()
    assert cli(*created.search).code == 0
    after = trials_of(created)
    assert after[:3] == before
    assert [trial.number for trial in after] == list(range(6))
    assert len({trial.candidate for trial in after}) == len(optuna_trials(created)) == 6


# ---- several processes


@pytest.mark.parametrize("search", ["tpe", "auto", "mixed"])
def test_two_processes_share_a_study_without_doubling_a_trial(new_study: MakeStudy, search: str) -> None:
    study = new_study(landscapes.wide(build_s=0.02), budget=Budget(24), search=search, early_end=False)
    processes = [start_tuner(*study.search) for _ in range(2)]
    ends = [(process.communicate()[1], process.returncode) for process in processes]
    assert [code for _, code in ends] == [0, 0], ends
    trials = trials_of(study)
    assert [trial.number for trial in trials] == list(range(24))
    assert len({trial.candidate for trial in trials}) == 24
    told = [trial.user_attrs["tuner_uid"] for trial in optuna_trials(study)]
    assert sorted(told) == sorted(trial.uid for trial in trials)


_HOLD_SCRATCH = """
import sys
from tuner.home import open_home
with open_home(sys.argv[1]) as home, home.artifacts.scratch() as folder:
    (folder / "engine").write_text("half built")
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_files_of_a_process_that_is_at_work_are_left_alone(created: Study) -> None:
    # A confirmation, or a run that measures the noise floor, builds for minutes without having a trial.
    command = [sys.executable, "-c", _HOLD_SCRATCH, created.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        engine = Path(other.stdout.readline().strip()) / "engine"
        run_study(created.name, storage=created.url, budget=Budget(1))
        assert engine.read_text() == "half built"
        other.kill()
    run_study(created.name, storage=created.url, budget=Budget(2))
    assert not engine.parent.exists()
