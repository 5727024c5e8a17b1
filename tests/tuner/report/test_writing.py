"""`report` and its Python form: what is written where, what is refused, and that nothing heavy is imported for text."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.conftest import Cli
from tests.tuner.conftest import Study
from tests.tuner.report.conftest import Kept, Told
from tests.tuner.report.stories import HOSTILE, KINDS, hostile
from tuner.report.as_json import report_json
from tuner.report.markdown import code, markdown, text
from tuner.report.writing import Form, render

STUDY_KEYS = {
    *("name", "created_at", "model", "objective", "metric", "search", "inputs", "build_only", "storage", "context"),
    *("verdict", "cautions", "ship", "reproduce", "contexts"),
}
CONTEXT_KEYS = {
    *("number", "parent", "opened_at", "opened_because", "carried", "optuna_study", "environment", "space", "limits"),
    *("verdict", "counts", "spent_s", "default_trial", "best_trial", "importance", "unexplained", "effects"),
    *("pairings", "failures", "machine", "confirmations", "engines", "trials"),
}


def test_a_page_is_written_under_the_studys_name(
    cli: Cli, finished: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = cli("report", *finished.at)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("wrote demo.html")
    assert "Not confirmed yet" in ended.out
    assert (tmp_path / "demo.html").read_text().startswith("<!doctype html>")
    assert [path.name for path in tmp_path.glob("*.html")] == ["demo.html"]
    assert not list(tmp_path.glob(".demo*"))


def test_the_files_name_says_the_form(cli: Cli, finished: Study, tmp_path: Path) -> None:
    for name, start in (("a.md", "## demo"), ("a.json", "{"), ("a.html", "<!doctype"), ("a.txt", "<!doctype")):
        (tmp_path / name).write_text("old")
        assert cli("report", *finished.at, "-o", tmp_path / name).code == 0
        assert (tmp_path / name).read_text().startswith(start), name
    assert cli("report", *finished.at, "-o", tmp_path / "b.html", "--format", "md").code == 0
    assert (tmp_path / "b.html").read_text().startswith("## demo")


@pytest.mark.parametrize("words", [(), ("-o", "-")])
def test_text_goes_to_stdout(cli: Cli, finished: Study, words: tuple[str, ...]) -> None:
    assert cli("report", *finished.at, "--format", "md", *words).out.startswith("## demo")
    assert json.loads(cli("report", *finished.at, "--format", "json", *words).out)["schema"] == 1


def test_a_page_goes_to_stdout_when_asked(cli: Cli, created: Study) -> None:
    assert cli("report", *created.at, "-o", "-").out.startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("report", "nobody"), "nobody"),
        (("report", "demo", "demo"), "named twice"),
        (("report", "demo", "--context", "9"), "no context 9"),
        (("report", "demo", "-o", "nowhere/a.html"), "no folder"),
        (("report", "demo", "-o", "."), "is a folder"),
        (("report", "demo", "nobody", "--context", "1"), "single study"),
    ],
)
def test_bad_input_is_refused(
    cli: Cli, finished: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    ended = cli(*words, "--storage", finished.url)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err
    assert "hint:" in ended.err
    assert not list(folder.iterdir())


def test_a_file_that_cannot_be_replaced_stays_as_it_is(study_of: Kept, tmp_path: Path) -> None:
    with pytest.raises(tuner.report.writing.UsageError):
        tuner.write_report("demo", tmp_path, storage=study_of("faster").url)


def test_python_writes_the_same(study_of: Kept, tmp_path: Path) -> None:
    study = study_of("faster")
    path = tuner.write_report(study.name, tmp_path / "r.md", storage=study.url)
    assert path == tmp_path / "r.md"
    assert _timeless(path.read_text()) == _timeless(tuner.report_text([study.name], "md", storage=study.url))
    with pytest.raises(tuner.report.writing.UsageError):
        tuner.report_text(study.name, "pdf", storage=study.url)


@pytest.mark.parametrize("kind", KINDS)
def test_json_has_the_keys_that_are_promised(told: Told, kind: str) -> None:
    found = json.loads(render([told(kind)], Form.JSON))
    assert set(found) == {"schema", "made_at", "tuner_version", "studies"}
    (study,) = found["studies"]
    assert set(study) == STUDY_KEYS
    assert all(set(one) == CONTEXT_KEYS for one in study["contexts"])
    for context in study["contexts"]:
        assert context["counts"]["trials"] == len(context["trials"])
        assert sum(context["counts"][one] for one in ("feasible", "rejected", "failed")) == len(context["trials"])


def test_json_says_what_the_facts_say(told: Told) -> None:
    (study,) = report_json([told("faster")])["studies"]
    context = told("faster").context
    assert context is not None
    assert study["verdict"]["answer"] == "faster"
    assert study["verdict"]["speedup"] == context.headline.speedup
    assert study["ship"]["engine"]["trial"] == context.headline.trial
    assert study["context"] == context.number


@pytest.mark.parametrize("kind", KINDS)
def test_markdown_has_the_verdict_first_and_whole_tables(told: Told, kind: str) -> None:
    lines = markdown([told(kind)]).splitlines()
    assert lines[0] == "## demo"
    context = told(kind).context
    if context is not None:
        assert lines[2] == f"**{text(context.headline.sentence)}**"
    for above, line in pairwise(lines):
        if above.startswith("| ") and line.startswith("| "):
            assert _cells(above) == _cells(line)


def test_several_studies_make_a_comparison(told: Told) -> None:
    whole = markdown([told("faster"), told("untried"), told("undecided")])
    assert whole.startswith("## tuner report: what each study found")
    assert "nothing measured yet" in whole
    assert len(report_json([told("faster"), told("undecided")])["studies"]) == 2


def test_markdown_lets_nothing_out_of_its_place(told: Told) -> None:
    whole = markdown([hostile(told("faster"))])
    prose = re.sub(r"\\.", "", re.sub(r"^(`{3,}).*?^\1$", "", whole, flags=re.M | re.S))
    outside = re.sub(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", "", prose)
    assert "<script" not in outside
    assert "<img" not in outside
    assert "@all" not in outside
    assert "[x](y)" not in outside
    assert HOSTILE[:9] in whole  # it was there


def test_code_spans_hold_what_they_are_given() -> None:
    assert code("a`b") == "``a`b``"
    assert code("`") == "`` ` ``"
    assert code("") == ""
    assert code("a\nb|c") == "`a b¦c`"


@pytest.mark.parametrize("form", ["md", "json"])
def test_text_is_made_without_plotly(study_of: Kept, form: str) -> None:
    study = study_of("unconfirmed")
    script = (
        f"import sys; from tuner.cli import main; main(['report', 'demo', '--format', {form!r}, '--storage', "
        f"{study.url!r}]); sys.exit('plotly' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def _cells(line: str) -> int:
    return len(re.findall(r"(?<!\\)\|", line))


def _timeless(words: str) -> Any:
    return re.sub(r"made .* by", "", words)
