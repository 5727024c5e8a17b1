"""Who may import whom, read from the source itself: no rings, single doors, nothing heavy where it does not belong."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("tuner", "objectives", "storage")
RUNTIMES = {"onnxruntime", "torch", "tensorrt", "tensorrt_rtx", "cuda", "cupy", "pycuda", "openvino", "modelopt"}


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))}


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _statements(node: ast.AST, inside: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import that runs, and whether it stands inside a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, inside
        elif not _is_for_types(child):
            yield from _statements(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def _targets(statement: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(statement, ast.Import):
        return {alias.name for alias in statement.names}
    assert statement.level == 0, "imports are written in full here"
    base = statement.module or ""
    # `from package import module` means the module; `from module import name` the module itself.
    return {full if (full := f"{base}.{alias.name}") in MODULES else base for alias in statement.names}


def _imports(module: str, inside: bool | None = None) -> set[str]:
    """What a module imports when it runs; `inside` False: when it is imported, True: inside its functions."""
    return {
        target
        for statement, is_inside in _statements(_tree(module))
        if inside is None or inside is is_inside
        for target in _targets(statement)
    }


def _importers(packages: set[str]) -> set[str]:
    return {module for module in MODULES if {target.split(".")[0] for target in _imports(module)} & packages}


def _ring(edges: dict[str, set[str]]) -> list[str]:
    """Modules on some ring; empty when there is none."""
    left = dict(edges)
    while free := [module for module, targets in left.items() if not targets & left.keys()]:
        for module in free:
            del left[module]
    return sorted(left)


def test_the_source_is_found() -> None:
    assert {"tuner.loop", "objectives.worker", "storage.migrate", "tuner.cli.study"} <= MODULES.keys()
    assert "objectives.outcome" in _imports("tuner.loop")
    assert "storage.trials" in _imports("tuner.loop")  # written `from storage import trials`


def test_a_ring_would_be_found() -> None:
    assert _ring({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["a", "b", "c", "d"]
    assert _ring({"a": {"b"}, "b": {"c"}, "c": set(), "d": {"a"}}) == []


def test_imports_form_no_ring() -> None:
    # A package's own file re-exports its modules; a module that goes through it would close a ring as well.
    assert _ring({module: _imports(module, inside=False) & MODULES.keys() for module in MODULES}) == []


@pytest.mark.parametrize(
    ("room", "others"), [("objectives", {"tuner", "storage"}), ("storage", {"tuner", "objectives"})]
)
def test_rooms_that_know_nothing_of_the_others(room: str, others: set[str]) -> None:
    assert {module for module in _importers(others) if module.split(".")[0] == room} == set()


def test_nothing_imports_the_tests() -> None:
    assert _importers({"tests", "pytest", "hypothesis", "benchmarks"}) == set()


def test_optuna_has_two_doors() -> None:
    rooms = ("tuner.search", "tuner.dashboard")
    assert {module for module in _importers({"optuna"}) if not module.startswith(rooms)} == set()
    assert _importers({"optuna"})


def test_the_dashboard_of_optuna_has_one_door() -> None:
    extra = {"optuna_dashboard", "bottle"}
    assert {module for module in _importers(extra) if not module.startswith("tuner.dashboard")} == set()


def test_the_database_has_one_door() -> None:
    assert {module for module in _importers({"sqlalchemy", "alembic"}) if not module.startswith("storage")} == set()


def test_runtimes_have_one_door() -> None:
    assert {module for module in _importers(RUNTIMES) if not module.startswith("objectives.backends.")} == set()


def test_the_terminal_belongs_to_the_command_line() -> None:
    assert {module for module in _importers({"click", "rich"}) if not module.startswith("tuner.cli")} == set()


def test_a_backend_is_reached_through_the_registry_alone() -> None:
    seam = {"objectives.backends", "objectives.backends.base", "objectives.backends.registry"}
    for module in MODULES:
        if not module.startswith("objectives.backends"):
            reached = {target for target in _imports(module) if target.startswith("objectives.backends")}
            assert reached <= seam, module


def test_a_runtimes_files_know_no_other_runtime() -> None:
    for module in MODULES:
        if module.startswith("objectives.backends.ort"):
            assert _imports(module) & (RUNTIMES - {"onnxruntime"}) == set()
        if module == "objectives.backends.synthetic":
            assert {target.split(".")[0] for target in _imports(module)} & RUNTIMES == set()


def test_only_command_handlers_import_late() -> None:
    late = {module for module in MODULES if _imports(module, inside=True)}
    assert {module for module in late if not module.startswith("tuner.cli")} == set()


def test_pickle_and_shells_are_used_nowhere() -> None:
    assert _importers({"pickle", "marshal", "shelve", "dill", "cloudpickle"}) == set()
    calls = {
        module
        for module in MODULES
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.keyword) and node.arg == "shell" and ast.unparse(node.value) != "False"
    }
    assert calls == set()


def test_settings_are_read_from_the_environment_by_the_command_line_alone() -> None:
    # The child's whitelist is handed the environment to filter it, a user's program to run in it, a child hears from it
    # which device is its own, and hands it on to its replicas; no setting is read.
    allowed = {
        "objectives.child",
        "objectives.backends.command_process",
        "objectives.devices",
        "objectives.replicas.process",
    }
    readers = {
        module
        for module in MODULES
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")
    }
    assert {module for module in readers if not module.startswith("tuner.cli")} <= allowed


def test_every_file_begins_with_what_it_is_for() -> None:
    # Files that are empty, or that only a tool reads, have nothing to say.
    silent = {
        module for module in MODULES if MODULES[module].read_text().strip() and ast.get_docstring(_tree(module)) is None
    }
    assert silent == set()
