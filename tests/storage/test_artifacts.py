"""Artifacts: whole or not there, inside the folder or refused, and checked when read."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from storage.artifacts import ArtifactFolder, default_folder
from storage.errors import CorruptError, DatabaseUnusableError, NotFoundError

CONTENT = b"engine bytes" * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "main ü.plan").write_bytes(CONTENT)
    (folder / "weights").mkdir()
    (folder / "weights" / "w.bin").write_bytes(b"w")
    return folder


@pytest.fixture
def artifacts(tmp_path: Path) -> ArtifactFolder:
    return ArtifactFolder(tmp_path / "home" / "tuner.artifacts")


def _everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _break_copying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies stop halfway, as on a full disk."""

    def half(source: Path, target: Path) -> None:
        data = Path(source).read_bytes()
        Path(target).write_bytes(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", half)


def test_artifacts_lie_beside_their_database() -> None:
    assert default_folder("sqlite:///some/where/tuner.db") == Path("some/where/tuner.artifacts")
    assert default_folder("sqlite:////abs/my.studies.db") == Path("/abs/my.studies.artifacts")
    assert default_folder("postgresql+psycopg://host/name") == Path("tuner.artifacts")


def test_a_file_is_put_once_under_its_digest(artifacts: ArtifactFolder, source: Path) -> None:
    path = artifacts.put("tensors", DIGEST, source / "main ü.plan")
    assert path == artifacts.root / "tensors" / DIGEST
    assert path.read_bytes() == CONTENT
    (source / "main ü.plan").write_bytes(b"changed since")
    assert artifacts.put("tensors", DIGEST, source / "main ü.plan") == path
    assert path.read_bytes() == CONTENT
    assert _everything(artifacts.root) == {"tensors", f"tensors/{DIGEST}"}


def test_a_group_keeps_names_and_folders(artifacts: ArtifactFolder, source: Path) -> None:
    path = artifacts.put_group("models", DIGEST, source, ("main ü.plan", "weights/w.bin"))
    assert path == artifacts.root / "models" / DIGEST
    assert artifacts.path("models", DIGEST, "main ü.plan").read_bytes() == CONTENT
    assert artifacts.path("models", DIGEST, "weights/w.bin").read_bytes() == b"w"
    again = artifacts.put_group("models", DIGEST, source, ("main ü.plan",))
    assert (again / "weights" / "w.bin").exists()
    assert {path.name for path in artifacts.root.iterdir()} == {"models"}


def test_a_file_that_could_not_be_copied_whole_is_not_there(
    artifacts: ArtifactFolder, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        _break_copying(patch)
        with pytest.raises(DatabaseUnusableError, match="No space left") as caught:
            artifacts.put("tensors", DIGEST, source / "main ü.plan")
        assert caught.value.hint
        with pytest.raises(DatabaseUnusableError):
            artifacts.put_group("models", DIGEST, source, ("weights/w.bin", "main ü.plan"))
    assert not {name for name in _everything(artifacts.root) if "/" in name or name.startswith("put-")}
    # What failed once works when there is room again.
    assert artifacts.put("tensors", DIGEST, source / "main ü.plan").read_bytes() == CONTENT


def test_a_group_put_by_many_at_once_is_whole(artifacts: ArtifactFolder, source: Path) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(8)

    def put() -> None:
        start.wait()
        try:
            artifacts.put_group("engines", DIGEST, source, ("main ü.plan", "weights/w.bin"))
            artifacts.put("tensors", DIGEST, source / "main ü.plan")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert artifacts.verified("tensors", DIGEST).read_bytes() == CONTENT
    assert _everything(artifacts.root / "engines" / DIGEST) == {"main ü.plan", "weights", "weights/w.bin"}
    assert {path.name for path in artifacts.root.iterdir()} == {"engines", "tensors"}


@pytest.mark.parametrize(
    ("kind", "digest", "name"),
    [
        ("models", "../../../etc/passwd", ""),
        ("models", "..", ""),
        ("models", "", ""),
        ("models", DIGEST.upper(), ""),
        ("models", DIGEST[:-1], ""),
        ("models", DIGEST + "\n", ""),
        ("../../..", DIGEST, ""),
        ("/etc", DIGEST, ""),
        ("models", DIGEST, "../../../outside"),
        ("models", DIGEST, "/etc/passwd"),
    ],
)
def test_a_name_that_leads_out_is_refused(artifacts: ArtifactFolder, kind: str, digest: str, name: str) -> None:
    with pytest.raises(NotFoundError):
        artifacts.path(kind, digest, name)


def test_a_link_that_leads_out_is_refused(artifacts: ArtifactFolder, tmp_path: Path) -> None:
    (artifacts.root / "models").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (artifacts.root / "models" / DIGEST).symlink_to(tmp_path / "secret")
    with pytest.raises(NotFoundError):
        artifacts.path("models", DIGEST, "key")


@pytest.mark.parametrize("name", ["../x", "../../x", "../../../x", "/x", "deep/../../x"])
def test_a_group_does_not_write_outside_its_folder(
    artifacts: ArtifactFolder, source: Path, tmp_path: Path, name: str
) -> None:
    # A model's file names come from the model; a backend of somebody else may name anything as a sidecar.
    artifacts.root.mkdir(parents=True)
    (source / "weights" / "deep").mkdir()
    for folder in (source, tmp_path, tmp_path.parent):
        (folder / "x").write_bytes(b"to be copied")
    before = _everything(artifacts.root.parent)
    with pytest.raises(NotFoundError):
        artifacts.put_group("engines", DIGEST, source / "weights", ("w.bin", name))
    assert _everything(artifacts.root.parent) == before
    (tmp_path.parent / "x").unlink()


def test_a_verified_file_has_the_bytes_of_its_digest(artifacts: ArtifactFolder, source: Path) -> None:
    path = artifacts.put("tensors", DIGEST, source / "main ü.plan")
    assert artifacts.verified("tensors", DIGEST) == path
    path.write_bytes(CONTENT[:-1] + b"!")
    with pytest.raises(CorruptError, match="digest") as caught:
        artifacts.verified("tensors", DIGEST)
    assert caught.value.exit_code == 1
    path.write_bytes(b"")
    with pytest.raises(CorruptError):
        artifacts.verified("tensors", DIGEST)


def test_a_missing_file_is_not_found(artifacts: ArtifactFolder) -> None:
    with pytest.raises(NotFoundError, match=DIGEST) as caught:
        artifacts.verified("tensors", DIGEST)
    assert caught.value.hint


def test_files_and_groups_are_removed_and_nothing_else(artifacts: ArtifactFolder, source: Path) -> None:
    artifacts.put("tensors", DIGEST, source / "main ü.plan")
    artifacts.put("tensors", "0" * 64, source / "main ü.plan")
    artifacts.put_group("models", DIGEST, source, ("main ü.plan",))
    for _ in range(2):  # the second time there is nothing to remove
        artifacts.remove("tensors", DIGEST)
        artifacts.remove("models", DIGEST)
    assert _everything(artifacts.root) == {"tensors", "models", f"tensors/{'0' * 64}"}


def test_scratch_is_empty_on_the_same_disk_and_gone_afterwards(artifacts: ArtifactFolder) -> None:
    with artifacts.scratch() as first, artifacts.scratch() as second:
        assert first != second
        assert first.is_relative_to(artifacts.root)
        assert list(first.iterdir()) == []
        (first / "engine").write_bytes(b"e")
    with pytest.raises(ZeroDivisionError), artifacts.scratch() as third:
        (third / "deep").mkdir()
        raise ZeroDivisionError
    assert list(artifacts.root.iterdir()) == []


@pytest.mark.parametrize("moment", ["made", "removed"])
def test_an_interrupt_while_a_temporary_folder_is_made_or_removed_leaves_nothing(
    artifacts: ArtifactFolder, source: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    # A signal raises between any two steps: also after a folder was made, before anybody knows of it.
    make, remove = tempfile.mkdtemp, shutil.rmtree

    def interrupted_making(*arguments: Any) -> str:
        monkeypatch.undo()
        make(*arguments)
        raise KeyboardInterrupt

    def interrupted_removing(folder: str, *_: Any, **__: Any) -> None:
        monkeypatch.undo()
        for file in Path(folder).rglob("weights*"):
            remove(file)
        raise KeyboardInterrupt

    def interrupt_once() -> None:
        if moment == "made":
            monkeypatch.setattr(tempfile, "mkdtemp", interrupted_making)
        else:
            monkeypatch.setattr(shutil, "rmtree", interrupted_removing)

    interrupt_once()
    with pytest.raises(KeyboardInterrupt), artifacts.scratch() as folder:
        (folder / "weights").mkdir()
        (folder / "engine").write_bytes(b"e")
    interrupt_once()
    with pytest.raises(KeyboardInterrupt):
        artifacts.put("tensors", DIGEST, source / "main ü.plan")
    assert [path for path in artifacts.root.iterdir() if path.name != "tensors"] == []


def test_a_folder_that_cannot_be_made_is_said_with_a_remedy(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for blocked in (ArtifactFolder(tmp_path / "file"), ArtifactFolder(Path("/proc/artifacts"))):
        with pytest.raises(DatabaseUnusableError) as caught:
            blocked.put("tensors", DIGEST, source / "main ü.plan")
        assert "--artifacts" in caught.value.hint
        with pytest.raises(DatabaseUnusableError), blocked.scratch():
            pass
