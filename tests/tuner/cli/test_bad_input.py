"""Bad input: exit code 2, one sentence with a remedy on stderr, nothing on stdout, and nothing changed on disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from objectives.digest import digest_of_file
from objectives.isolation import InProcess
from storage.migrate import VERSION_TABLE, open_database
from tests import landscapes, onnx_models
from tests.conftest import Cli, Ended
from tests.tuner.conftest import Study

Words = list[object]
Prepare = Callable[[Path], Words]  # makes files in the folder, gives the flags that use them


@dataclass(frozen=True, slots=True)
class Case:
    """Flags that are wrong, and what the message must say. `has_hint` is False where the sentence is its own remedy."""

    name: str
    flags: Prepare
    says: tuple[str, ...]
    has_hint: bool = True


def case(name: str, flags: str | Prepare, *says: str, has_hint: bool = True) -> Case:
    prepare = (lambda _: list(flags.split())) if isinstance(flags, str) else flags
    return Case(name, prepare, says, has_hint)


# ---- files that cases need


def _file(name: str, content: bytes) -> Prepare:
    def prepare(folder: Path) -> Words:
        (folder / name).write_bytes(content)
        return ["--model", folder / name]

    return prepare


def _truncated(folder: Path) -> Words:
    whole = onnx_models.conv(folder)
    path = folder / "truncated.onnx"
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    return ["--model", path]


def _without_weights(folder: Path) -> Words:
    path = onnx_models.external(folder)
    (folder / "gewichte ü.bin").unlink()
    return ["--model", path]


def _mlp(*flags: object) -> Prepare:
    return lambda folder: ["--model", onnx_models.mlp(folder), *flags]


def _identity(dtype: str, *flags: object) -> Prepare:
    return lambda folder: ["--model", onnx_models.identity(folder, dtype, (4,)), *flags]


def _npz(flag: str, name: str, **arrays: np.ndarray) -> Prepare:
    def prepare(folder: Path) -> Words:
        np.savez(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]
        return [flag, folder / f"{name}.npz"]

    return prepare


def _both(*parts: Prepare) -> Prepare:
    return lambda folder: [word for part in parts for word in part(folder)]


def _data(content: bytes, name: str = "data.npz") -> Prepare:
    def prepare(folder: Path) -> Words:
        (folder / name).write_bytes(content)
        return ["--inputs", folder / name]

    return prepare


def _raw(folder: Path) -> Words:
    (folder / "x.bin").write_bytes(bytes(31))
    return ["--inputs", f"x:{folder / 'x.bin'}"]


def _empty_folder(folder: Path) -> Words:
    (folder / "empty").mkdir()
    return ["--inputs", folder / "empty"]


F32 = np.ones(8, np.float32)
GOOD_INPUTS = _npz("--inputs", "inputs", x=F32)
MODELS = [
    case("missing", "--model nowhere.onnx", "'nowhere.onnx'", "does not exist"),
    case("folder", lambda folder: ["--model", folder], "not a file"),
    case("not-onnx", _file("cat.onnx", b"This is the picture of a cat. " * 40), "cat.onnx", "ONNX"),
    case("empty-file", _file("void.onnx", b""), "void.onnx", "ONNX"),
    case("truncated", _truncated, "truncated.onnx", "ONNX"),
    case("weights-missing", _without_weights, "gewichte ü.bin", "missing"),
    case("unknown-operator", lambda folder: ["--model", onnx_models.unknown_operator(folder)], "Nonsense"),
    case("dynamic-shape-not-given", _mlp(), "'x'", "nx64", "--shapes 'x:1x64'"),
    case("wrong-fixed-size", _mlp("--shapes", "x:4x63"), "'x'", "nx64", "4x63"),
    case("wrong-rank", _mlp("--shapes", "x:4"), "'x'", "nx64"),
    case("negative-size", _mlp("--shapes", "x:-4x64"), "'x'", "negative", has_hint=False),
    case("shape-of-unknown-input", _mlp("--shapes", "y:4x64"), "'y'", "inputs: x"),
    case("integer-without-range", _identity("int64"), "'x'", "int64", "--range"),
    case("text-without-data", _identity("string"), "'x'", "--inputs"),
    case("range-backwards", _identity("int64", "--range", "x:5:1"), "5..1", "low <= high"),
    case("range-beyond-type", _identity("int8", "--range", "x:0:300"), "0..300", "int8"),
    case("range-of-unknown-input", _identity("float32", "--range", "z:0:1"), "'z'", has_hint=False),
    case("range-without-end", _identity("float32", "--range", "x:-inf:inf"), "'x'"),
    case("range-not-a-number", _identity("float32", "--range", "x:nan:1"), "'x'"),
    case("integer-range-without-end", _identity("int64", "--range", "x:0:inf"), "'x'"),
]
FLAGS = [
    case("not-a-landscape", _file("model.json", b"{}"), "landscape"),
    case("unknown-backend", "--backend warp", "'warp'", "synthetic"),
    case("unknown-knob", "--knobs warp", "'warp'", "a, b"),
    case("no-knob-left", "--knobs=-*", "leaves no knob"),
    case("unknown-metric", "--max-loss speed=0.1", "'speed'", "rel_l2"),
    case("no-limit", "--max-loss rel_l2=small", "'rel_l2=small'", "top1=0.01"),
    case("negative-limit", "--max-loss rel_l2=-1", "rel_l2", "at least 0"),
    case("limit-not-a-number", "--max-loss nan", "rel_l2"),
    case("limit-without-end", "--max-loss inf", "rel_l2"),
    case("limit-for-unknown-output", "--max-loss rel_l2:logits=0.1", "'logits'", "outputs: y"),
    case("metric-of-wrong-form", "--metric speed", "'speed'", "package.module:function", has_hint=False),
    case("metric-without-limit", "--metric os.path:join", "'os.path:join'", "--max-loss"),
    case("metric-module-missing", "--max-loss no.such.module:f=1", "no.such.module"),
    case("metric-function-missing", "--max-loss os.path:no_such_function=1", "no_such_function"),
    case("metric-not-callable", "--max-loss os.path:sep=1", "os.path:sep", "not a function", has_hint=False),
    case("metric-that-raises", "--max-loss os.path:join=1", "TypeError", "function(actual, expected)"),
    case("shape-of-another-size", "--shapes x:5", "'x'", "8", "not 5"),
    case("no-shape", "--shapes x:1xb", "'x:1xb'", "name:1x3x224x224"),
    case("shape-twice", "--shapes x:8 --shapes x:8", "'x' twice", has_hint=False),
    case("no-range", "--range x:low:high", "'x:low:high'", "name:low:high"),
    case("no-pairs", "--pairs 0", "--pairs", "at least 1", has_hint=False),
    case("no-trials", "--n-trials 0", "--n-trials", "at least 1", has_hint=False),
    case("trials-no-number", "--n-trials many", "many"),
    case("no-duration", "--timeout soon", "'soon'", "15m"),
    case("no-time", "--timeout 0s", "--timeout", "positive", has_hint=False),
    case("no-trial-time", "--trial-timeout 0", "--trial-timeout", "not 0 s", has_hint=False),
    case("trial-time-no-duration", "--trial-timeout 5x", "'5x'", "15m"),
    case("trial-time-beyond-any-clock", "--trial-timeout 99999999999d", "--trial-timeout", has_hint=False),
    case("timing-no-duration", "--timing-budget x", "'x'", "15m"),
    case("no-size", "--memory-limit lots", "'lots'", "8G"),
    case("too-little-memory", "--memory-limit 1K", "--memory-limit", has_hint=False),
    case("unknown-search", "--search gradient", "'gradient'", "auto, tpe, gp, nsgaii, random"),
    case("unknown-flag", "--nonsense 1", "--nonsense"),
]
DATA = [
    case("file-missing", "--inputs nowhere.npz", "'nowhere.npz'", "does not exist", has_hint=False),
    case("unknown-form", "--inputs data.parquet", "'data.parquet'", ".npz"),
    case("garbage", _data(b"garbage"), "data.npz"),
    case("empty-archive", _data(b""), "data.npz"),
    case("empty-folder", _empty_folder, "empty", ".npy", has_hint=False),
    case("pickled", _npz("--inputs", "objects", x=np.array([{"a": 1}] * 8)), "objects"),
    case("wrong-type", _npz("--inputs", "double", x=np.ones(8)), "'x'", "float64", "float32"),
    case("wrong-shape", _npz("--inputs", "short", x=F32[:7]), "'x'", "7"),
    case("wrong-rank", _npz("--inputs", "matrix", x=F32.reshape(2, 4)), "'x'", "2x4"),
    case("input-missing", _npz("--inputs", "nothing", z=F32), "lack 'x'"),
    case("input-too-many", _npz("--inputs", "more", x=F32, z=F32), "'z'", "takes: x"),
    case("raw-of-wrong-size", _raw, "31 bytes", "32", has_hint=False),
    case("raw-of-unknown-input", "--inputs z:x.bin", "'z:x.bin'", "names: x"),
    case("reference-alone", _npz("--reference", "r", y=F32), "--reference", "--inputs"),
    case("range-and-data", _both(GOOD_INPUTS, lambda _: ["--range", "x:0:1"]), "--range", "--inputs"),
    case("reference-of-other-size", _both(GOOD_INPUTS, _npz("--reference", "r", y=F32[:7])), "'y'", "[7]", "8"),
    case("reference-of-other-type", _both(GOOD_INPUTS, _npz("--reference", "r", y=np.ones(8))), "'y'", "float64"),
    case("reference-of-other-output", _both(GOOD_INPUTS, _npz("--reference", "r", y=F32, q=F32)), "'q'"),
    case("reference-without-output", _both(GOOD_INPUTS, _npz("--reference", "r")), "'y'"),
    case(
        "fewer-references", _both(GOOD_INPUTS, GOOD_INPUTS, _npz("--reference", "r", y=F32)), "1 reference", "2 input"
    ),
]


def _names(cases: list[Case]) -> list[object]:
    return [pytest.param(one, id=one.name) for one in cases]


# ---- what every refusal must be


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same requests and answers without the start of a process; `test_..._through_the_pipe` has the real one."""
    for module in ("tuner.create", "tuner.api"):
        monkeypatch.setattr(f"{module}.Subprocess", lambda *_: InProcess())


def listing(folder: Path) -> dict[str, str]:
    """Every file with its digest, every folder."""
    return {str(path.relative_to(folder)): digest_of_file(path) if path.is_file() else "" for path in folder.rglob("*")}


def refused(ended: Ended, *says: str, has_hint: bool = True) -> None:
    """Check the form of a refusal and that it says what it must."""
    assert ended.code == 2, ended
    assert ended.out == ""
    lines = [line for line in ended.err.splitlines() if line]
    errors = [line for line in lines if line.lower().startswith("error: ")]
    assert len(errors) == 1, ended.err
    assert "Traceback" not in ended.err
    assert [word for word in says if word not in ended.err] == [], ended.err
    if not errors[0].startswith("Error: "):  # click's own begin so, and say `Try ... --help` before
        assert len(lines) <= 2, ended.err
        assert lines[0] == errors[0]
        assert any(line.startswith("  hint: ") and len(line) > 12 for line in lines) or not has_hint, ended.err
    else:
        assert "--help" in ended.err


def _create(cli: Cli, *flags: object) -> Ended:
    return cli("study", "create", "new", *flags, "--storage", "sqlite:///tuner.db")


# ---- study create


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("one", _names(MODELS))
def test_models_and_shapes(one: Case, cli: Cli, tmp_path: Path) -> None:
    flags = one.flags(tmp_path)
    before = listing(tmp_path)
    refused(_create(cli, *flags), *one.says, has_hint=one.has_hint)
    assert listing(tmp_path) == before


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("one", _names(FLAGS + DATA))
def test_flags_and_data(one: Case, cli: Cli, tmp_path: Path) -> None:
    model = landscapes.small().save(tmp_path / "landscape.json")
    flags = ["--model", model, "--backend", "synthetic", *one.flags(tmp_path)]  # the last of a flag counts
    before = listing(tmp_path)
    refused(_create(cli, *flags), *one.says, has_hint=one.has_hint)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("name", ["truncated", "dynamic-shape-not-given", "unknown-operator", "integer-without-range"])
def test_models_and_shapes_through_the_pipe(name: str, cli: Cli, tmp_path: Path) -> None:
    (one,) = [one for one in MODELS if one.name == name]
    flags = one.flags(tmp_path)
    before = listing(tmp_path)
    refused(_create(cli, *flags), *one.says, has_hint=one.has_hint)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("name", ["unknown-backend", "metric-module-missing", "metric-that-raises"])
def test_flags_through_the_pipe(name: str, cli: Cli, tmp_path: Path) -> None:
    (one,) = [one for one in FLAGS if one.name == name]
    model = landscapes.small().save(tmp_path / "landscape.json")
    before = listing(tmp_path)
    flags = ["--model", model, "--backend", "synthetic", *one.flags(tmp_path)]
    refused(_create(cli, *flags), *one.says, has_hint=one.has_hint)
    assert listing(tmp_path) == before


def test_a_model_is_asked_for(cli: Cli, tmp_path: Path) -> None:
    refused(_create(cli), "--model")
    assert listing(tmp_path) == {}


@pytest.mark.parametrize("name", ["", " ", " a", "a\nb", "a" * 151])
def test_names_that_cannot_be(name: str, cli: Cli, tmp_path: Path) -> None:
    model = landscapes.small().save(tmp_path / "landscape.json")
    before = listing(tmp_path)
    flags = ("--model", model, "--backend", "synthetic", "--storage", "sqlite:///tuner.db")
    refused(cli("study", "create", name, *flags), "cannot name a study", "150")
    assert listing(tmp_path) == before


def test_a_name_that_exists(created: Study, cli: Cli) -> None:
    before = listing(created.folder)
    flags = ("--model", created.folder / "landscape.json", "--backend", "synthetic")
    refused(cli("study", "create", *created.at, *flags), "'demo'", "exists", "study run demo", "study delete demo")
    assert listing(created.folder) == before


# ---- databases that cannot be


def _storages(folder: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    (folder / "notes.db").write_text("These are notes, not a database. " * 100)
    return {
        "folder-missing": (f"sqlite:///{folder}/no/where/tuner.db", ("no/where", "does not exist")),
        "unwritable": ("sqlite:////proc/tuner.db", ("/proc",)),
        "not-a-database": (f"sqlite:///{folder}/notes.db", ("notes.db", "another path")),
        "folder-as-file": (f"sqlite:///{folder}", ()),
        "in-memory": ("sqlite://", ("memory", "sqlite:///tuner.db")),
        "nonsense": ("nonsense", ("'nonsense'", "sqlite:///")),
        "empty": ("://", ("sqlite:///",)),
        "unknown-database": ("nosuchdb://host/name", ("nosuchdb", "sqlite:///")),
        "driver-missing": ("mysql+pymysql://me:secret@host/name", ("pip install",)),
    }


STORAGES = [
    *("folder-missing", "unwritable", "not-a-database", "folder-as-file", "in-memory", "nonsense", "empty"),
    *("unknown-database", "driver-missing"),
]
ASKING = {
    "list": ("study", "list"),
    "show": ("study", "show", "new"),
    "run": ("study", "run", "new"),
    "best": ("study", "best", "new"),
    "delete": ("study", "delete", "new", "--yes"),
    "check": ("db", "check"),
}


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("kind", STORAGES)
def test_databases_that_cannot_be_used_by_create(kind: str, cli: Cli, tmp_path: Path) -> None:
    model = landscapes.small().save(tmp_path / "landscape.json")
    url, says = _storages(tmp_path)[kind]
    before = listing(tmp_path)
    ended = cli("study", "create", "new", "--model", model, "--backend", "synthetic", "--storage", url)
    refused(ended, *says)
    assert "secret" not in ended.err
    assert listing(tmp_path) == before


@pytest.mark.parametrize("kind", STORAGES)
@pytest.mark.parametrize("command", [*ASKING, "upgrade"])
def test_databases_that_cannot_be_used_by_the_others(kind: str, command: str, cli: Cli, tmp_path: Path) -> None:
    url, says = _storages(tmp_path)[kind]
    before = listing(tmp_path)
    ended = cli(*ASKING.get(command, ("db", "upgrade")), "--storage", url)
    # What does not exist cannot be refused for its folder: it is not there, that is all there is to say.
    refused(ended, *(says if command == "upgrade" or kind not in ("folder-missing", "unwritable") else ()))
    assert "secret" not in ended.err
    assert listing(tmp_path) == before


@pytest.mark.parametrize("command", ASKING)
def test_a_database_that_is_not_there_is_not_made(command: str, cli: Cli, tmp_path: Path) -> None:
    refused(cli(*ASKING[command], "--storage", f"sqlite:///{tmp_path}/tuner.db"), "tuner.db", "study create")
    assert listing(tmp_path) == {}


@pytest.mark.parametrize("command", ["show", "run", "best", "delete"])
def test_an_unknown_study(command: str, created: Study, cli: Cli) -> None:
    before = listing(created.folder)
    refused(cli(*ASKING[command], "--storage", created.url), "'new'", "studies here: demo")
    assert listing(created.folder) == before


@pytest.mark.parametrize("command", ASKING)
def test_a_database_of_a_newer_version(command: str, created: Study, cli: Cli) -> None:
    database = open_database(created.url)
    with database.writing() as session:
        session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    database.close()
    before = listing(created.folder)
    refused(cli(*ASKING[command], "--storage", created.url), "9999", "upgrade the tuner")
    assert listing(created.folder) == before


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("place", ["file-in-the-way", "/proc/artifacts"])
def test_artifacts_that_cannot_be_written(place: str, cli: Cli, tmp_path: Path) -> None:
    model = landscapes.small().save(tmp_path / "landscape.json")
    (tmp_path / "file-in-the-way").write_text("here first")
    before = listing(tmp_path)
    refused(_create(cli, "--model", model, "--backend", "synthetic", "--artifacts", place), "--artifacts")
    assert listing(tmp_path) == before


# ---- the other commands


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--n-trials", "0"), ("--n-trials", "at least 1")),
        (("--n-trials", "-5"), ("--n-trials", "at least 1")),
        (("--n-trials", "many"), ("many",)),
        (("--timeout", "soon"), ("'soon'", "15m")),
        (("--timeout", "0"), ("--timeout", "positive")),
    ],
)
def test_a_run_with_a_budget_that_cannot_be(
    flags: tuple[str, str], says: tuple[str, ...], created: Study, cli: Cli
) -> None:
    before = listing(created.folder)
    refused(cli("study", "run", *created.at, *flags), *says, has_hint=False)
    assert listing(created.folder) == before


def test_a_run_without_its_artifacts(created: Study, cli: Cli) -> None:
    shutil.rmtree(created.artifacts)
    before = listing(created.folder)
    refused(cli("study", "run", *created.at), "does not exist")
    assert listing(created.folder) == before


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("knobs", "--model", "nowhere.onnx"), ("'nowhere.onnx'", "does not exist")),
        (("knobs",), ("--model",)),
        (("env", "--backend", "warp"), ("'warp'", "synthetic")),
        (("study", "crate"), ("crate",)),
        (("stduy",), ("stduy",)),
        (("study", "show"), ("NAME",)),
        (("db", "upgrade", "now"), ("now",)),
    ],
)
def test_words_that_no_command_takes(command: tuple[str, ...], says: tuple[str, ...], cli: Cli, tmp_path: Path) -> None:
    refused(cli(*command), *says)
    assert listing(tmp_path) == {}


def test_knobs_that_select_nothing(cli: Cli, tmp_path: Path) -> None:
    model = landscapes.small().save(tmp_path / "landscape.json")
    refused(cli("knobs", "--model", model, "--backend", "synthetic", "--knobs", "warp"), "'warp'", "a, b")


def test_an_error_without_a_remedy_of_its_own_names_the_help(cli: Cli, tmp_path: Path) -> None:
    ended = cli("study", "run", "s", "--n-trials", 0, "--storage", f"sqlite:///{tmp_path}/tuner.db")
    assert ended.code == 2
    assert "hint: python -m tuner study run --help" in ended.err
