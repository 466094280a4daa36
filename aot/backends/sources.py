"""Which of our sources a compile worker runs, and their digest: the factor "program" of a compiled unit's key.

What a worker imports decides the bytes that it writes. The list is not kept by hand: it is every module of this project
that the worker's own module imports, at its top or inside a function, and what those import in turn. Imports for type
checkers are not run, and do not count. Found by reading the sources: nothing is imported here.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("aot", "runtime")


def program_digest(entries: Iterable[str], *, alone: Iterable[str] = (), root: Path = ROOT) -> str:
    """Digest of the code of all modules that `entries` import, without paths, comments and docstrings.

    Args:
        entries: modules by their full names ("aot.backends.aoti.worker").
        alone: modules that count themselves, but not what they import.
        root: the folder that holds the packages.
    """
    digest = hashlib.sha256()
    for name in sorted({*imported(entries, root), *alone}):
        digest.update(f"{name}\0{code_of(_source(name, root))}\0".encode())
    return digest.hexdigest()


def imported(entries: Iterable[str], root: Path = ROOT) -> list[str]:
    """The project's modules that run when `entries` are imported and all of their functions are called, in order.

    Raises:
        LookupError: an entry is no module.
    """
    found: set[str] = set()
    waiting = list(entries)
    for entry in waiting:
        if _file(entry, root) is None:
            raise LookupError(entry)
    while waiting:
        name = waiting.pop()
        if name in found or name.partition(".")[0] not in PACKAGES or _file(name, root) is None:
            continue
        found.add(name)
        package, _, _ = name.rpartition(".")
        if package:  # its __init__ runs first
            waiting.append(package)
        for node in _imports(_source(name, root)):
            if isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
            else:
                module = _absolute(node, name, root)
                waiting += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return sorted(found)


@functools.lru_cache(maxsize=256)
def code_of(source: str) -> str:
    """The syntax tree of Python source as text, without comments, layout and docstrings: what can change a result."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


@functools.lru_cache(maxsize=256)
def _imports(source: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
    return tuple(node for node in _run(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom))


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below `node` but those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for other in child.orelse:
                yield other
                yield from _run(other)
        else:
            yield child
            yield from _run(child)


def _absolute(node: ast.ImportFrom, name: str, root: Path) -> str:
    """The module that `from ... import` in module `name` names."""
    if not node.level:
        return node.module or ""
    parts = name.split(".") if _folder(name, root).is_dir() else name.split(".")[:-1]
    base = parts[: len(parts) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def _folder(name: str, root: Path) -> Path:
    return root.joinpath(*name.split("."))


def _file(name: str, root: Path) -> Path | None:
    folder = _folder(name, root)
    for file in (folder / "__init__.py", folder.with_suffix(".py")):
        if file.is_file():
            return file
    return None


def _source(name: str, root: Path) -> str:
    file = _file(name, root)
    assert file is not None  # it was found a moment ago
    return file.read_text(encoding="utf-8")
