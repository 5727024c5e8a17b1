"""`study watch`, and the lines that stay in place: what they say, how wide they are, when watching ends."""

from __future__ import annotations

import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests import landscapes
from tests.conftest import Cli, start_tuner
from tests.tuner.conftest import MakeStudy, Study
from tuner.answers import ConfirmOptions
from tuner.api import confirm_study, show_study
from tuner.cli import watch
from tuner.cli.live import Standing, live_lines
from tuner.doing import Doing
from tuner.results import Summary
from tuner.spec import Budget
from tuner.stats import Level, Noise

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DOING = {"": Doing("trial #6", NOW - timedelta(seconds=12), "building", "3 of 10")}
FLOOR = Noise(Level(0.01, 10), Level(0.003, 3), Level(0.0, 1))


@pytest.fixture
def summary(finished: Study) -> Summary:
    view = show_study(finished.name, storage=finished.url).latest
    assert view is not None
    return view.summary


def test_the_lines_say_how_far_what_now_what_best_and_counts(summary: Summary) -> None:
    budget, stage, best, counts = live_lines(Standing(Budget(12), summary, DOING, FLOOR), 200, now=NOW)
    assert budget.startswith("█" * 15 + "░" * 15 + "  6 of 12 trials, about ")
    assert stage == "now     trial #6 building, 3 of 10 (12 s)"
    assert best.startswith("best    1.492x ± 0.0")
    assert best.endswith(" in the search: trial #1 b=v1") or "in the search: trial #" in best
    assert counts == "so far  3 feasible, 1 rejected, 2 failed (2 build failed)"


def test_time_is_a_budget_too(summary: Summary) -> None:
    at = replace(summary, spent_s=90.0)
    line = live_lines(Standing(Budget(None, 120.0), at, DOING), 100, now=NOW)[0]
    assert line == "█" * 22 + "░" * 8 + "  6 trials, 1 min 30 s of 2 min 0 s, about 30.0 s left"


def test_a_budget_that_is_spent_has_no_time_left(summary: Summary) -> None:
    assert "left" not in live_lines(Standing(Budget(6), summary, {}), 100, now=NOW)[0]


def test_noise_is_said_where_it_is_known_alone(summary: Summary) -> None:
    assert "±" not in "".join(live_lines(Standing(Budget(12), summary, DOING), 100, now=NOW))


def test_several_devices_have_a_line_each(summary: Summary) -> None:
    doing = {"1": DOING[""], "0": Doing("waiting for another process", NOW - timedelta(seconds=90))}
    lines = live_lines(Standing(Budget(12), summary, doing), 100, now=NOW)
    assert lines[1] == "now     device 0: waiting for another process (1 min 30 s)"
    assert lines[2] == "now     device 1: trial #6 building, 3 of 10 (12 s)"


def test_before_anything_is_known() -> None:
    assert live_lines(Standing(Budget(12), None, DOING), 80, now=NOW) == ["now     trial #6 building, 3 of 10 (12 s)"]


@pytest.mark.parametrize("width", [20, 40, 80, 120])
@pytest.mark.parametrize("is_unicode", [True, False])
def test_no_line_is_wider_than_the_terminal(summary: Summary, width: int, is_unicode: bool) -> None:
    verdict = {"verdict": "faster", "speedup": 1.5, "ci_low": 1.4, "ci_high": None, "confidence": 0.95}
    verdict |= {"n_pairs": 8, "reason": "faster beyond doubt"}
    standing = Standing(Budget(12, 600.0), summary, DOING, FLOOR, verdict)
    lines = live_lines(standing, width, now=NOW, is_unicode=is_unicode)
    assert len(lines) == 5
    assert max(map(len, lines)) <= width
    assert is_unicode or "".join(lines).isascii()


def test_nobody_at_work_ends_it_with_the_standing_and_the_next_command(finished: Study, cli: Cli) -> None:
    ended = cli("study", "watch", *finished.at)
    assert ended.code == 0
    assert "6 trials so far: 3 feasible, 1 rejected, 2 failed" in ended.err
    assert ended.err.count("\n[6/6] #") == 5  # of what came before the last few
    assert "nobody is at work on study 'demo'" in ended.out
    assert ended.out.endswith("next: python -m tuner study confirm demo\n")
    assert "\x1b" not in ended.err + ended.out
    confirm_study(finished.name, ConfirmOptions(finalists=1, builds=2), storage=finished.url)
    after = cli("study", "watch", *finished.at)
    assert "  FASTER: " in after.out
    assert after.out.endswith("next: python -m tuner study best demo\n")


def test_before_the_first_run(created: Study, cli: Cli) -> None:
    ended = cli("study", "watch", *created.at)
    assert (ended.code, ended.out) == (0, "study 'demo' has not been run\nnext: python -m tuner study run demo\n")


def test_an_unknown_study(created: Study, cli: Cli) -> None:
    ended = cli("study", "watch", "nobody", "--storage", created.url)
    assert (ended.code, "hint: " in ended.err) == (2, True)


def test_a_run_in_another_process_is_followed_to_its_end(
    new_study: MakeStudy, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_IDLE_S", 0.0)
    monkeypatch.setattr(watch, "_LOOK_S", 0.2)
    study = new_study(landscapes.small(build_s=0.5), budget=Budget(4))
    with start_tuner(*study.search) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if "#0" in line)
        ended = cli("study", "watch", *study.at)
        process.communicate()
    assert process.returncode == 0
    numbers = [line.split("#")[1].split()[0] for line in ended.err.splitlines() if line.startswith("[")]
    assert numbers == ["0", "1", "2", "3"]
    assert ended.out.endswith("next: python -m tuner study confirm demo\n")


def test_an_interrupt_ends_the_watching_alone(finished: Study) -> None:
    with start_tuner("study", "watch", *finished.at, "--wait") as process:
        assert process.stderr is not None
        next(line for line in process.stderr if "[6/6]" in line)
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 0
