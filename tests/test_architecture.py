"""The tables of docs/architecture.md are true: this reads them and holds the code to them."""

from __future__ import annotations

import ast
import pkgutil
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp
import pytest
from attrs import frozen

ROOT = Path(__file__).parents[1]
CORE = ROOT / "src" / "mlgym_core"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")

#: Imports that climb, to be mended.
CLIMBING = {
    ("mlgym_core.agent.config", "mlgym_core.plugins.hookspecs"),
    ("mlgym_core.task.onefile", "mlgym_core.authoring.scaffold.templates"),
}


def table(header: str) -> list[list[str]]:
    """The cells of the table that begins with ``header``, row by row."""
    lines = iter(PAGE.splitlines())
    for line in lines:
        if line == header:
            next(lines)
            break
    else:
        raise AssertionError(f"docs/architecture.md has no table {header}")
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def module(path: str) -> str:
    """The dotted name of a path below the core: ``sandbox/local/`` is ``mlgym_core.sandbox.local``."""
    dotted = path.removesuffix("/").removesuffix(".py").replace("/", ".").removesuffix("__init__")
    return f"mlgym_core.{dotted}".rstrip(".")


def is_in(name: str, places: Iterable[str]) -> bool:
    return any(f"{name}.".startswith(f"{module(place)}.") for place in places)


def paths(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@frozen
class Room:
    name: str
    paths: tuple[str, ...]
    forbidden: tuple[str, ...]


ROOMS = [
    Room(name, tuple(paths(where)), tuple(paths(never)))
    for name, where, _, never in table("| room | where | holds | never imports |")
]
#: The room of a package or module, by its dotted name; the longest that fits counts.
DOORS = {module(path): position for position, room in enumerate(ROOMS) for path in room.paths}


def place(name: str) -> int:
    """The row of the room that holds a module; what lies beside the rooms has none."""
    door = name
    while door not in DOORS:
        door = door.rpartition(".")[0]
        assert door not in {"", "mlgym_core"}, f"{name} lies in no room of docs/architecture.md"
    return DOORS[door]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("mlgym_core", include_external_packages=True, cache_dir=None)


def is_marker(path: Path) -> bool:
    """Whether a module only says what its folder is, so that rooms can lie side by side in it."""
    return all(isinstance(statement, ast.Expr) for statement in ast.parse(path.read_text("utf-8")).body)


def imports(graph: grimp.ImportGraph) -> Iterator[tuple[str, str]]:
    """Every import of the core, of its own modules and of others' packages."""
    for name in sorted(graph.modules):
        if name.split(".")[0] == "mlgym_core":
            yield from ((name, imported) for imported in sorted(graph.find_modules_directly_imported_by(name)))


def test_every_module_lies_in_a_room_and_every_room_is_there() -> None:
    for path in (path for room in ROOMS for path in room.paths):
        assert (CORE / path).exists(), f"docs/architecture.md names {path}, which is not there"
    for path in CORE.rglob("*.py"):
        if "templates" not in path.parts and not is_marker(path):
            place(module(str(path.relative_to(CORE)).removesuffix("/__init__.py")))


def test_rooms_import_only_rooms_below_them(graph: grimp.ImportGraph) -> None:
    climbing = {
        (importer, imported)
        for importer, imported in imports(graph)
        if imported.startswith("mlgym_core") and place(imported) < place(importer)
    }
    assert not climbing - CLIMBING


@pytest.mark.parametrize("room", [room for room in ROOMS if room.forbidden], ids=lambda room: room.name)
def test_rooms_never_import_what_they_promise_not_to(room: Room, graph: grimp.ImportGraph) -> None:
    for importer, imported in imports(graph):
        if is_in(importer, room.paths):
            assert not is_in(imported, room.forbidden), f"{importer} imports {imported}"


def test_a_library_with_one_door_is_imported_behind_it(graph: grimp.ImportGraph) -> None:
    for library, where in table("| library | where |"):
        (name,), (door,) = paths(library), paths(where)
        importers = graph.find_modules_that_directly_import(name)
        assert importers
        assert all(is_in(importer, [door]) for importer in importers), name


def test_the_core_imports_itself_the_standard_library_and_what_it_declares(graph: grimp.ImportGraph) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*project["dependencies"], *(line for lines in project["optional-dependencies"].values() for line in lines)]
    declared = {re.split(r"[^\w-]", line)[0].lower().replace("_", "-") for line in lines}
    providers = packages_distributions()
    for importer, imported in imports(graph):
        if imported.split(".")[0] in {"mlgym_core", *sys.stdlib_module_names} or ".inside." in importer:
            continue
        providing = {name.lower().replace("_", "-") for name in providers.get(imported, ())}
        assert providing & declared, f"{importer} imports {imported}"


@pytest.mark.parametrize(
    "path",
    sorted(path for path in CORE.rglob("*.py") if "inside" in path.relative_to(CORE).parts),
    ids=lambda path: path.stem,
)
def test_files_that_run_elsewhere_import_nothing_of_ours(path: Path) -> None:
    neighbours = CORE.joinpath(*path.relative_to(CORE).parts[: path.relative_to(CORE).parts.index("inside") + 1])
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            assert path.parents[node.level - 1].is_relative_to(neighbours)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for name in names:
                assert name.split(".")[0] != "mlgym_core" or is_in(name, [str(neighbours.relative_to(CORE))])


def defined(path: Path) -> set[str]:
    """The names a module defines at its top, and ``Class.method``."""
    names: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
            names |= {f"{node.name}.{part.name}" for part in ast.walk(node) if isinstance(part, ast.FunctionDef)}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {ast.unparse(target) for target in targets}
    return names


@pytest.mark.parametrize("row", table("| what | where |"), ids=lambda row: row[0])
def test_what_is_to_be_found_is_there(row: list[str]) -> None:
    files = [CORE / name for name in paths(row[1]) if name.endswith(("/", ".py"))]
    names = [name for name in paths(row[1]) if not name.endswith(("/", ".py"))]
    assert files
    for file in files:
        assert file.exists(), file
    there = {name for file in files if file.is_file() for name in defined(file)}
    assert not set(names) - there


@pytest.mark.parametrize(
    "page", sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]), ids=lambda page: page.name
)
def test_names_of_the_core_in_the_docs_are_there(page: Path) -> None:
    text = page.read_text("utf-8")
    for dotted in set(re.findall(r"\bmlgym_core(?:\.\w+)+", text)):
        pkgutil.resolve_name(dotted)
    rooms = {path.name for path in CORE.iterdir() if path.is_dir()}
    for path in re.findall(r"`((\w+)/[\w/]+\.(?:py|sh))`", text):
        assert path[1] not in rooms or (CORE / path[0]).exists(), path[0]
