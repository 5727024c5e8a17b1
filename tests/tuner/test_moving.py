"""Studies as files: out of one database and into another of any kind, with nothing lost and nothing trusted."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import optuna
import pytest
import sqlalchemy as sa
from optuna.storages import RDBStorage

from objectives.isolation import InProcess
from storage import confirmations, controls, studies, trials
from storage.dump import dump_study
from storage.engines import engines_of
from storage.errors import AlreadyExistsError, CorruptError, NotFoundError
from storage.schema import Base
from tests import landscapes
from tests.conftest import Cli
from tests.tuner.conftest import Study
from tests.tuner.released import NAME, QUIET, Released
from tuner import api, export_study, import_study, shipping, study_file
from tuner.answers import ConfirmOptions
from tuner.confirm import Confirmation
from tuner.context import contexts
from tuner.engines import CONFIRM_KIND
from tuner.errors import UsageError
from tuner.home import open_home
from tuner.progress import Progress
from tuner.spec import Budget, read_spec


class Source(NamedTuple):
    """A study that was searched and confirmed, and its file."""

    study: Released
    folder: Path
    file: Path


@pytest.fixture(scope="session")
def _source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("source")
    study = Released(folder, landscapes.small(**QUIET), control_every=2)
    file = folder / "s.tar.gz"
    export_study(NAME, file, storage=study.url)
    return Source(study, folder, file)


@pytest.fixture
def source(_source: Source) -> Source:
    """Only to be read."""
    return _source


@pytest.fixture
def there(any_url: str, tmp_path: Path) -> tuple[str, Path]:
    """Another database, of each kind in turn, with its artifacts."""
    return any_url, tmp_path / "there"


def read_back(url: str, name: str = NAME) -> Any:
    """All that a database tells of a study, with keys and identities that belong to the database taken out."""
    with open_home(url, Path("/nowhere")) as home:
        database = home.database
        record = studies.get_study(database, name)
        found = studies.contexts_of(database, name)
        numbers = {one.id: one.number for one in found}
        told: list[Any] = [replace(record, spec=dict(record.spec))]
        for one in found:
            told.append(replace(one, id=0, parent_id=numbers.get(one.parent_id or 0), space=one.space))
            told.append([replace(t, id=0, context_id=0) for t in trials.list_trials(database, one.id)])
            told.append([controls.controls_of(database, one.id), controls.get_noise(database, one.id)])
            told.append(engines_of(database, one.id))
            for asked in confirmations.confirmations_of(database, one.id):
                told.append(replace(asked, id=0, context_id=0))
                told.append(confirmations.pairs_of(database, asked.id))
                told.append(confirmations.verdicts_of(database, asked.id))
    return told


# What the study was made with; the rest, such as the verdict, is a page's: drawn after an import, not by this source.
OF_A_CONTEXT = (
    "context",
    "study",
    "model_digest",
    "backend",
    "backend_version",
    "environment_digest",
    "knob_space_digest",
    "limits",
)
LATER = ("speedup", "engine")  # of a trial: corrected by what is known since, rebuilt by a confirmation


def drawn(url: str) -> Any:
    """Optuna's studies, as Optuna reads them, but for drift: told anew, a trial is corrected by what is known since."""
    storage = RDBStorage(url)
    try:
        return [_drawn(storage, summary.study_name) for summary in optuna.get_all_study_summaries(storage=storage)]
    finally:
        storage.engine.dispose()


def _drawn(storage: RDBStorage, name: str) -> Any:
    study, shown = optuna.load_study(study_name=name, storage=storage), []
    for t in study.trials:
        assert t.value == pytest.approx(t.user_attrs.get("speedup", 1.0) * 1e3, rel=0.05)
        attributes = {name: value for name, value in t.user_attrs.items() if name not in LATER}
        shown.append((t.state, t.params, t.constraints, attributes, t.datetime_start, t.datetime_complete))
    return study.study_name, study.direction, {name: study.user_attrs.get(name) for name in OF_A_CONTEXT}, shown


def dumped_values(url: str) -> dict[str, list[dict[str, Any]]]:
    with open_home(url, Path("/nowhere")) as home:
        return dump_study(home.database, NAME)


def files(folder: Path) -> dict[str, bytes]:
    """Contents by path, without what dashboards are shown, which is drawn again."""
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith("optuna/")}


def test_a_round_trip_loses_nothing(source: Source, there: tuple[str, Path]) -> None:
    url, artifacts = there
    moved = import_study(source.file, storage=url, artifacts=artifacts)
    assert moved.study == NAME
    assert moved.trials == 6
    before, after = read_back(source.study.url), read_back(url)
    assert len(after) > 6
    assert repr(after) == repr(before)
    assert drawn(url) == drawn(source.study.url)
    assert files(artifacts) == files(source.folder / "tuner.artifacts")
    assert dumped_values(url).keys() == dumped_values(source.study.url).keys()
    assert api.check_database(url, artifacts) == []
    kept = shipping.verify_engines(NAME, run=True, storage=url, artifacts=artifacts)
    assert [one.trouble for one in kept] == [""] * len(kept) != []


def test_and_back_again(source: Source, there: tuple[str, Path], tmp_path: Path) -> None:
    url, artifacts = there
    import_study(source.file, storage=url, artifacts=artifacts)
    export_study(NAME, tmp_path / "back.tar.gz", storage=url, artifacts=artifacts)
    home = f"sqlite:///{tmp_path / 'home.db'}"
    import_study(tmp_path / "back.tar.gz", storage=home)
    assert repr(read_back(home)) == repr(read_back(source.study.url))
    assert drawn(home) == drawn(source.study.url)


def test_a_study_is_confirmed_there(finished: Study, there: tuple[str, Path], tmp_path: Path) -> None:
    url, artifacts = there
    file = tmp_path / "study.tar.gz"
    export_study(finished.name, file, storage=finished.url)
    import_study(file, storage=url, artifacts=artifacts)
    before = api.show_study(finished.name, storage=url).contexts[-1]
    assert before.unfinished == ()
    confirmed = api.confirm_study(
        finished.name, ConfirmOptions(finalists=1, builds=2), storage=url, artifacts=artifacts
    )
    assert confirmed.winner is not None


def test_the_next_number_comes_next(tmp_path: Path, there: tuple[str, Path]) -> None:
    url, artifacts = there
    (tmp_path / "home").mkdir()
    study = Released(tmp_path / "home", landscapes.wide(**QUIET), confirm=False)
    export_study(NAME, tmp_path / "s.tar.gz", storage=study.url)
    import_study(tmp_path / "s.tar.gz", storage=url, artifacts=artifacts)
    summary = api.run_study(NAME, storage=url, artifacts=artifacts, budget=Budget(8))
    assert summary.n_trials == 8
    view = api.show_study(NAME, storage=url)
    assert [trial.number for trial in view.contexts[-1].trials] == list(range(8))
    assert len(view.contexts) == 1  # the same context goes on
    assert len(drawn(url)[0][3]) == 8


def test_an_interrupted_trial_is_repeated_there(tmp_path: Path, source: Source) -> None:
    home = tmp_path / "home"
    shutil.copytree(source.folder, home)
    url = f"sqlite:///{home / 'tuner.db'}"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE tuner_trial SET finished_at = NULL, told = false WHERE number = 5"))
    engine.dispose()
    export_study(NAME, tmp_path / "s.tar.gz", storage=url)
    there = f"sqlite:///{tmp_path / 'there.db'}"
    import_study(tmp_path / "s.tar.gz", storage=there)
    assert [words for _, words in api.show_study(NAME, storage=there).contexts[-1].unfinished] == [
        "interrupted; the next run repeats it"
    ]
    assert len(drawn(there)[0][3]) == 5


def test_under_another_name_beside_the_first(source: Source, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tuner.db'}"
    import_study(source.file, storage=url)
    with pytest.raises(AlreadyExistsError, match="exists"):
        import_study(source.file, storage=url)
    with pytest.raises(UsageError, match="cannot name"):
        import_study(source.file, name=" x", storage=url)
    moved = import_study(source.file, name="größer", storage=url)
    assert moved.study == "größer"
    assert len(drawn(url)) == 2
    assert {name for name, *_ in drawn(url)} == {"s [1] synthetic 1", "größer [1] synthetic 1"}
    one, other = (api.best_of(name, storage=url) for name in (NAME, "größer"))
    assert one.trial is not None
    assert other.trial is not None
    assert one.trial.candidate == other.trial.candidate
    assert one.trial.uid != other.trial.uid
    assert other.verdict is not None
    assert other.verdict["winner"] == other.trial.uid  # the new identity is everywhere
    assert other.engine is not None
    assert read_spec_name(url, "größer") == "größer"
    api.delete_study(NAME, storage=url)
    assert api.check_database(url) == []
    assert shipping.verify_engines("größer", storage=url)[0].trouble == ""


def read_spec_name(url: str, name: str) -> str:
    with open_home(url) as home:
        return read_spec(studies.get_study(home.database, name).spec).name


def test_without_engine_files(source: Source, tmp_path: Path) -> None:
    file, url = tmp_path / "light.tar.gz", f"sqlite:///{tmp_path / 'tuner.db'}"
    moved = export_study(NAME, file, engines=False, storage=source.study.url)
    assert moved.files < len(files(source.folder / "tuner.artifacts"))
    with tarfile.open(file) as archive:
        stream = archive.extractfile("rows/tuner_engine.jsonl")
        assert stream is not None
        assert b'"manifest"' in stream.read()
    assert not import_study(file, storage=url).engines
    assert shipping.list_engines(NAME, storage=url) == []
    best = api.best_of(NAME, storage=url)
    assert best.engine is None
    assert best.verdict is not None
    assert best.trial is not None
    assert shipping.promote_engine(NAME, best.trial.number, storage=url).path.is_file()


def test_an_unfinished_confirmation_goes_on_there(tmp_path: Path) -> None:
    study = Released(tmp_path, landscapes.small(**QUIET), confirm=False)

    class Killed(Progress):
        taken = 0

        def on_pair(self, *_: Any) -> None:
            self.taken += 1
            if self.taken == 3:
                raise KeyboardInterrupt

    def confirm(url: str, progress: Progress) -> int:
        with open_home(url) as home:
            spec, context = read_spec(studies.get_study(home.database, NAME).spec), contexts(home, NAME)[-1]
            view = api.show_study(NAME, storage=url).contexts[-1]
            assert view.summary.baseline is not None
            assert view.summary.best is not None
            asked = Confirmation(home, spec, context, InProcess, progress)
            asked.run(view.summary.baseline, [view.summary.best], ConfirmOptions(finalists=1))
            return len(confirmations.confirmations_of(home.database, context.id))

    with pytest.raises(KeyboardInterrupt):
        confirm(study.url, Killed())
    whole, light = tmp_path / "whole.tar.gz", tmp_path / "light.tar.gz"
    export_study(NAME, whole, storage=study.url)
    export_study(NAME, light, engines=False, storage=study.url)
    shutil.rmtree(tmp_path / "tuner.artifacts" / CONFIRM_KIND)  # what is used there lies there
    url = f"sqlite:///{tmp_path / 'whole.db'}"
    import_study(whole, storage=url)
    going_on = Killed()
    going_on.taken = 10
    assert confirm(url, going_on) == 1
    assert going_on.taken < 10 + 16  # the first three pairs were not taken again
    url = f"sqlite:///{tmp_path / 'light.db'}"
    import_study(light, storage=url)
    assert confirm(url, Progress()) == 2  # one that could not go on, and a new one


def test_every_table_of_the_schema_comes_along(source: Source) -> None:
    assert set(dumped_values(source.study.url)) == set(Base.metadata.tables) - {"tuner_lease", "tuner_activity"}


Member = tuple[str, bytes]


@pytest.fixture
def forged(source: Source, tmp_path: Path) -> Callable[..., Path]:
    """Writes the file again with members changed; its digests fit unless `honest` says that they stay as they were."""

    def forge(change: Callable[[list[Member]], list[Member]], honest: bool = False) -> Path:
        with tarfile.open(source.file) as archive:
            members = [(one.name, archive.extractfile(one).read()) for one in archive]  # type: ignore[union-attr]
        digests = members[-1]
        changed = change(members[:-1])
        if not honest:
            listed = {name: hashlib.sha256(content).hexdigest() for name, content in changed}
            digests = ("digests.json", json.dumps(listed).encode())
        file = tmp_path / "forged.tar.gz"
        with tarfile.open(file, "w:gz") as archive:
            for name, content in [*changed, digests]:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return file

    return forge


def edit(name: str, change: Callable[[bytes], bytes]) -> Callable[[list[Member]], list[Member]]:
    """Changes the first member whose name begins so."""

    def apply(members: list[Member]) -> list[Member]:
        which = next(index for index, (found, _) in enumerate(members) if found.startswith(name))
        return [
            (found, change(content) if index == which else content) for index, (found, content) in enumerate(members)
        ]

    return apply


def set_header(**changes: Any) -> Callable[[list[Member]], list[Member]]:
    return edit("header.json", lambda content: json.dumps({**json.loads(content), **changes}).encode())


def set_row(table: str, **changes: Any) -> Callable[[list[Member]], list[Member]]:
    def change(content: bytes) -> bytes:
        first, *rest = content.splitlines(keepends=True)
        return json.dumps({**json.loads(first), **changes}).encode() + b"\n" + b"".join(rest)

    return edit(f"rows/{table}.jsonl", change)


def renamed(before: str, after: str) -> Callable[[list[Member]], list[Member]]:
    def apply(members: list[Member]) -> list[Member]:
        which = next(index for index, (found, _) in enumerate(members) if found.startswith(before))
        return [(after if index == which else found, content) for index, (found, content) in enumerate(members)]

    return apply


DIGEST = "0" * 64
REFUSED: dict[str, tuple[Callable[[list[Member]], list[Member]], str]] = {
    "another format": (set_header(format="other"), "holds no study"),
    "another version": (set_header(version=2), "is of version 2"),
    "no header": (lambda members: members[1:], "holds no study"),
    "a header that lacks something": (
        edit("header.json", lambda _: b'{"format":"tuner-study","version":1}'),
        "damaged",
    ),
    "a header that is no JSON": (edit("header.json", lambda _: b"{"), "damaged"),
    "out of the folder": (renamed("files/models", f"files/models/{DIGEST}/../../../evil"), "not the name of a file"),
    "a folder above": (renamed("files/models", "../evil"), "not the name of a file"),
    "an absolute name": (renamed("files/models", "/evil"), "not the name of a file"),
    "a backslash": (renamed("files/models", f"files/models/{DIGEST}/..\\evil"), "not the name of a file"),
    "another kind": (renamed("files/models", f"files/other/{DIGEST}"), "not the name of a file"),
    "a short digest": (renamed("files/models", "files/models/00/x"), "not the name of a file"),
    "a member twice": (lambda members: [*members, members[-1]], "unexpected member"),
    "no model": (lambda members: [one for one in members if not one[0].startswith("files/models")], "lacks models"),
    "no tensors": (lambda members: [one for one in members if not one[0].startswith("files/tensors")], "lacks tensors"),
    "tensors of another name": (edit("files/tensors", lambda content: content + b" "), "not what its name says"),
    "no study": (edit("rows/tuner_study", lambda _: b""), "does not hold one study"),
    "two studies": (edit("rows/tuner_study", lambda content: content * 2), "does not hold one study"),
    "a study without specification": (set_row("tuner_study", spec=None), "does not hold one study"),
    "a specification of another format": (set_row("tuner_study", spec={"format": 99}), "format 99"),
    "a specification that is none": (set_row("tuner_study", spec={"format": 1}), "missing required"),
    "rows that are no JSON": (edit("rows/tuner_trial", lambda _: b"{"), "damaged"),
    "rows that are no objects": (edit("rows/tuner_trial", lambda _: b"[1]\n"), "a row is none"),
    "an unknown table": (renamed("rows/tuner_pair", "rows/tuner_other.jsonl"), "no table tuner_other"),
    "an unknown column": (set_row("tuner_trial", other=1), "no column other"),
    "a column that is missing": (set_row("tuner_trial", uid=None), "has no uid"),
    "a row that belongs to nothing": (set_row("tuner_trial", context_id=99), "has no context_id"),
    "a number that is none": (set_row("tuner_trial", number="x"), "wrong type"),
    "a time that is none": (set_row("tuner_trial", started_at="x"), "no time"),
    "a text that is none": (set_row("tuner_trial", uid=[]), "wrong type"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, forged: Callable[..., Path], tmp_path: Path) -> None:
    change, words = REFUSED[case]
    url = f"sqlite:///{tmp_path / 'there' / 'tuner.db'}"
    (tmp_path / "there").mkdir()
    with pytest.raises(UsageError, match=words):
        import_study(forged(change), storage=url)
    assert not (tmp_path / "evil").exists()
    if (tmp_path / "there" / "tuner.db").exists():  # only what the database itself refuses comes so far
        assert api.list_studies(storage=url) == []
    else:
        assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.parametrize("member", ["header.json", "rows/tuner_trial", "files/models", "files/engines"])
def test_a_changed_byte_is_noticed(member: str, forged: Callable[..., Path], home_url: str) -> None:
    change = set_header(study="other") if member == "header.json" else edit(member, lambda content: content + b"\n")
    with pytest.raises(UsageError, match="is not what was written"):
        import_study(forged(change, honest=True), storage=home_url)


def test_links_and_what_is_cut_off(source: Source, home_url: str, tmp_path: Path) -> None:
    content = source.file.read_bytes()
    cut = tmp_path / "cut.tar.gz"
    for size in (0, 10, len(content) // 2):
        cut.write_bytes(content[:size])
        with pytest.raises(UsageError, match="damaged"):
            import_study(cut, storage=home_url)
    whole = gzip.decompress(content)
    cut.write_bytes(gzip.compress(whole[: len(whole) // 2 // 512 * 512]))
    with pytest.raises(UsageError, match="damaged"):
        import_study(cut, storage=home_url)
    with tarfile.open(cut, "w:gz") as archive:
        member = tarfile.TarInfo("header.json")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member)
    with pytest.raises(UsageError, match="no plain file"):
        import_study(cut, storage=home_url)
    with pytest.raises(UsageError, match="there is no file"):
        import_study(tmp_path / "nowhere", storage=home_url)
    assert not (tmp_path / "tuner.db").exists()


def test_what_cannot_be_exported(source: Source, tmp_path: Path) -> None:
    url = source.study.url
    with pytest.raises(NotFoundError):
        export_study("nobody", tmp_path / "x.tar.gz", storage=url)
    with pytest.raises(UsageError, match="exists"):
        export_study(NAME, source.file, storage=url)
    with pytest.raises(UsageError, match="cannot be written"):
        export_study(NAME, tmp_path / "nowhere" / "x.tar.gz", storage=url)
    with pytest.raises(UsageError, match="gzip"):
        export_study(NAME, tmp_path / "x.tar.zst", storage=url)
    home = tmp_path / "home"
    shutil.copytree(source.folder, home)
    tensors = next((home / "tuner.artifacts" / "tensors").iterdir())
    tensors.write_bytes(b"other")
    with pytest.raises(CorruptError):
        export_study(NAME, tmp_path / "x.tar.gz", storage=f"sqlite:///{home / 'tuner.db'}")
    shutil.rmtree(home / "tuner.artifacts" / "models")
    with pytest.raises(NotFoundError, match="models"):
        export_study(NAME, tmp_path / "x.tar.gz", storage=f"sqlite:///{home / 'tuner.db'}")
    assert not (tmp_path / "x.tar.gz").exists()


def test_commands(source: Source, cli: Cli, tmp_path: Path, home_url: str) -> None:
    file = tmp_path / "s.tar.gz"
    ended = cli("db", "export", NAME, "-o", file, "--storage", source.study.url)
    assert ended.code == 0, ended.err
    assert "6 trials" in ended.out
    ended = cli("db", "import", file, "--as", "new", "--storage", home_url, "--json")
    assert json.loads(ended.out)["study"] == "new"
    assert "6 trials" in cli("db", "import", file, "--storage", home_url).out
    ended = cli("db", "import", file, "--storage", home_url)
    assert ended.code == 2
    assert "--as" in ended.err
    ended = cli("db", "export", NAME, "-o", tmp_path / "l.tar.gz", "--no-engines", "--storage", source.study.url)
    assert "without engine files" in ended.out


def test_the_header_says_what_it_is(source: Source, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    found = study_file.read(source.file, tmp_path / "out")
    assert found.header.study == NAME
    assert found.header.engines
    assert found.header.version == study_file.VERSION
    assert msgspec.json.encode(found.header)
