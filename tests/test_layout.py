"""The layout of the package: the drawing in CONTRIBUTING is the contract, no package has a cycle,
`import insitu` stays small.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"


def _module(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {_module(path): path for path in sorted((SOURCE / "insitu").rglob("*.py"))}


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports(path: Path) -> set[str]:
    """The modules of insitu that a module imports, also inside of functions, but not for types
    only.
    """
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("insitu"):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name in MODULES)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(_tree(path))
    return found


def _cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def connect(module: str) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in order:
                connect(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], order[other])
        if low[module] == order[module]:
            component = []
            while component[-1:] != [module]:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    for module in graph:
        if module not in order:
            connect(module)
    return found


def test_no_package_has_a_cycle() -> None:
    """A package's own `__init__` may import its modules, and is not an import of theirs."""
    packages = {module for module, path in MODULES.items() if path.name == "__init__.py"}
    graph = {
        module: {other for other in _imports(path) if other in MODULES and other not in packages and other != module}
        for module, path in MODULES.items()
        if module not in packages
    }
    assert _cycles(graph) == []


def test_modules_import_no_lazy_name_at_the_top() -> None:
    """It is imported under a lock that forks wait for. While a module is imported, another thread may hold that lock
    and wait for the module: neither would ever end.
    """
    lazy = {
        (_module(path), alias.name)
        for path in MODULES.values()
        if path.name == "__init__.py" and "lazy_attributes(" in path.read_text(encoding="utf-8")
        for node in _tree(path).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for imported in node.body
        if isinstance(imported, ast.ImportFrom)
        for alias in imported.names
    }
    assert ("insitu.codecs", "decode") in lazy
    found = [
        f"{module} imports {node.module}.{alias.name}"
        for module, path in MODULES.items()
        for node in _statements_at_the_top(_tree(path))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (node.module, alias.name) in lazy
    ]
    assert not found


def _statements_at_the_top(node: ast.AST) -> Iterator[ast.AST]:
    """The statements that run when a module is imported."""
    for child in ast.iter_child_nodes(node):
        is_for_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if not is_for_types and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _statements_at_the_top(child)


def test_the_drawing_is_the_contract() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawing = text.split("```")[1].strip().splitlines()
    drawn = [re.split(r"  +", line)[0] for line in drawing]
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [layer.strip("()") for layer in contract[0]["layers"]]
    assert drawn == layers
    assert {name for layer in layers for name in layer.split(" | ")} == {
        module.split(".")[1] for module in MODULES if "." in module
    }


def test_the_glossary_is_short() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [line for line in text.split("## Glossary")[1].split("## ")[0].splitlines() if line.startswith("| ")]
    assert 20 < len(rows) - 1 <= 40


def test_the_rooms_that_answer_questions_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = re.findall(r"`([\w/]+\.py)`", text.split("Which room answers")[1].split("## Glossary")[0])
    assert len(rooms) >= 10
    assert [room for room in rooms if not (SOURCE / "insitu" / room).is_file()] == []


def test_importing_insitu_imports_no_format() -> None:
    code = "import insitu, sys; print([m for m in sys.modules if m.startswith('insitu.formats.') and m.count('.') > 1])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    names = {name.split(".")[2] for name in ast.literal_eval(found)}
    formats = {path.name for path in (SOURCE / "insitu" / "formats").iterdir() if (path / "scan.py").exists()}
    assert names & formats == set()


PACKAGE = ROOT / "src" / "insitu"
FORMATS = ("dmrpp", "fits", "grib", "hdf4", "hdf5", "netcdf3", "tiff", "zarr")


def test_the_core_names_no_format() -> None:
    """Formats are reached by the registry: no module elsewhere imports one, not even in a function."""
    found = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] != "formats"
        for node in ast.walk(_tree(path))
        for name in _imported(node)
        if name.split(".")[1:2] == ["formats"] and name.split(".")[2:3] and name.split(".")[2] in FORMATS
    ]
    assert not found


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


SAME_NAMES = {"registry", "scan", "packing", "credentials"}
"""Names that several packages use for the same role in each: where formats and codecs are registered,
the scan of each format, CF packing and its model, credentials of storage.
"""


def test_modules_of_different_packages_have_names_of_their_own() -> None:
    """The verbs of the command line are named after what they do, so they are left out."""
    seen: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        package = path.parent.relative_to(PACKAGE).as_posix()
        if path.stem != "__init__" and path.stem not in SAME_NAMES and package != "cli":
            assert path.stem not in seen, f"{package}/{path.stem} and {seen[path.stem]}/{path.stem}"
            seen[path.stem] = package


def test_no_function_is_a_bare_participle() -> None:
    """A participle is an attribute or a property: a function says what it does or returns."""
    allowed = {
        "weighted",
        "hold",
        "shutdown",
        "round",
        "bitround",
        "compound",
        "seed",
        "speed",
        "need",
        "feed",
        "embed",
        "shed",
        "thread",
        "ahead",
        "read",
        "load",
    }
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
                name = node.name.strip("_")
                if re.fullmatch(r"[a-z]+(ed|wn|ept|old|aid|osen|ound|ought)", name) and not is_property:
                    found += [f"{path.relative_to(PACKAGE)}: {node.name}"] if name not in allowed else []
    assert not found, "\n".join(found)


def test_no_function_that_is_imported_late_has_the_name_of_a_module() -> None:
    """Importing the module would put it in the place of the function."""
    for name, path in MODULES.items():
        if path.name != "__init__.py" or "lazy_attributes(" not in path.read_text(encoding="utf-8"):
            continue
        exported = next(
            (
                ast.literal_eval(node.value)
                for node in _tree(path).body
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
            ),
            [],
        )
        package = importlib.import_module(name)
        both = [own for own in exported if f"{name}.{own}" in MODULES]
        assert not [own for own in both if not inspect.ismodule(getattr(package, own))], name
