"""Who imports whom: the serve side never the build side nor a compiler, the build side never the loop but to verify.

Read off the sources, imports inside functions included, and checked once more on a running process.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RUNTIME_MAY_IMPORT = {"torch", "numpy", "safetensors", "tokenizers", "jinja2", "click", "runtime"}
# What one file may import besides, inside a function: an extra that nothing else needs
BESIDES = {
    "runtime/bench/plot.py": {"matplotlib"},
    "runtime/tune/plot.py": {"matplotlib"},
    "runtime/backends/sim.py": {"jax", "jaxlib", "ml_dtypes"},
    # At their top, but imported by eagle3-run serve alone, once its options are read
    "runtime/serve/app.py": {"anyio", "starlette"},
    "runtime/serve/cors.py": {"starlette"},
    "runtime/serve/metrics.py": {"prometheus_client"},
    "runtime/serve/respond.py": {"starlette"},
    "runtime/serve/protocol.py": {"uvicorn"},
    "runtime/serve/protocol_httptools.py": {"uvicorn"},
    "runtime/serve/server.py": {"starlette", "uvicorn"},
}
NEVER_IN_RUNTIME = ("torch._inductor", "torch._dynamo", "torch.export", "torch.compile")
CONTRACT = "runtime.bundle"
VERIFYING = (ROOT / "aot" / "build" / "verify.py", ROOT / "aot" / "build" / "verify_lowered.py")


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """(line, full name) of every import of a source file; `from a import b` gives both `a` and `a.b`."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} is a relative import"
            yield node.lineno, node.module or ""
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "__import__"):
            assert isinstance(node.args[0], ast.Constant), f"{file}:{node.lineno} imports what cannot be read here"
            yield node.lineno, str(node.args[0].value)


def sources(half: str) -> list[Path]:
    found = sorted((ROOT / half).rglob("*.py"))
    assert len(found) > 20
    return found


def test_the_runtime_imports_its_few_packages_and_no_compiler() -> None:
    allowed = RUNTIME_MAY_IMPORT | set(sys.stdlib_module_names)
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in sources("runtime")
        for line, name in imports(file)
        if name.partition(".")[0] not in allowed | BESIDES.get(file.relative_to(ROOT).as_posix(), set())
        or name.startswith(NEVER_IN_RUNTIME)
    ]
    assert wrong == []


def test_the_contract_imports_neither_half() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in sources("runtime")
        if file.parent.name == "bundle"
        for line, name in imports(file)
        if name.partition(".")[0] in ("aot", "torch") or (name.startswith("runtime.") and not is_contract(name))
    ]
    assert wrong == []


def test_the_builder_imports_the_loop_only_to_verify() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in sources("aot")
        if file.parent.name != "verify" and file not in VERIFYING
        for line, name in imports(file)
        if name.partition(".")[0] == "runtime" and not is_contract(name)
    ]
    assert wrong == []


def is_contract(name: str) -> bool:
    return name == CONTRACT or name.startswith(f"{CONTRACT}.")


# Modules that a command has imported when it ends
LISTING = """
import sys
from {module} import main
sys.argv = {arguments!r}
try:
    code = main()
except SystemExit as done:
    code = done.code
print("LOADED", *sys.modules, file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def loaded(console: Callable[..., Any]) -> Callable[..., set[str]]:
    """`loaded("runtime.cli", *arguments)`: the modules in memory after a command that succeeded."""

    def run(module: str, *arguments: object) -> set[str]:
        script = LISTING.format(module=module, arguments=["command", *map(str, arguments)])
        done = console(None, flags=("-c", script))
        assert done.returncode == 0, done.stderr
        return set(done.stderr.rpartition("LOADED")[2].split())

    return run


@pytest.mark.timeout(900)
def test_a_running_runtime_has_no_compiler_in_memory(loaded: Callable[..., set[str]], tiny_bundle: Path) -> None:
    prompts = tiny_bundle.parent / "boundary.jsonl"
    prompts.write_text('{"prompt_token_ids": [5, 6, 7], "max_tokens": 4}\n')
    modules = loaded("runtime.cli", "--bundle", tiny_bundle, "--prompts", prompts, "--json", "--stats")
    assert {"torch", "safetensors", "runtime.engine", "runtime.backends.aoti"} <= modules
    banned = ("torch._inductor", "torch._dynamo", "aot", "transformers", "pydantic", "rich", "yaml", "huggingface_hub")
    assert sorted(name for name in modules if name in banned or name.startswith(tuple(f"{b}." for b in banned))) == []


def test_help_loads_nothing_heavy(loaded: Callable[..., set[str]]) -> None:
    for module in ("runtime.cli", "aot.cli"):
        modules = loaded(module, "--help")
        assert not modules & {"torch", "transformers", "numpy", "pydantic", "tokenizers", "uvicorn"}, module


def test_planning_loads_no_torch(loaded: Callable[..., set[str]], tiny_config: Path) -> None:
    modules = loaded("aot.cli", "plan", "--config", tiny_config)
    assert "aot.build.plan" in modules
    assert not modules & {"torch", "transformers", "runtime.engine"}
