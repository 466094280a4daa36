"""A YAML file and overrides in, one checked `BuildConfig` out, or every problem of both in one report."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path

import yaml
from pydantic import ValidationError

from aot.config.explain import explain
from aot.config.fields import BuildConfig, NeuronBackend
from aot.config.limits import cross_problems
from aot.config.problems import Location, Problem, show
from aot.config.yamlfile import is_text, read_yaml, text_keys
from runtime.bundle.errors import ErrorGroup, UsageError


def load_config(path: Path, overrides: Sequence[str] = ()) -> BuildConfig:
    """Read, default and check the configuration at `path`.

    Relative `model_config`, `draft_config` and `backend.python` are looked up in the current directory, then
    in the YAML's folder, and come back absolute. `model` and `speculative_config.model` come back as written;
    resolve them with `BuildConfig.base`.

    Args:
        path: the YAML file. Its stem is the bundle's name where the file gives none.
        overrides: `KEY.PATH=VALUE` each, VALUE read as YAML; they win over the file.

    Raises:
        ConfigError: the file is missing, is not YAML or is not a mapping.
        ErrorGroup: of ConfigErrors, one for each problem inside the file.
        UsageError: an override is not KEY=VALUE.
    """
    assignments = [_parse(override) for override in overrides]
    file = read_yaml(path)
    values, places = {"name": path.stem, **file.values}, dict(file.places)
    places.setdefault("name", "from the file's name")
    for keys, value in assignments:
        _assign(values, keys, value)
        places[".".join(keys)] = "from an override"

    config, problems = _validate(values)
    problems = file.problems + problems
    if config is not None:
        config, missing = _find_files(config, path.parent)
        problems += missing
    if problems or config is None:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise ErrorGroup(f"{path} has {count}", [problem.error(places) for problem in problems])
    config._base = Path(os.path.abspath(path.parent))
    return config


def _validate(values: dict[str, object]) -> tuple[BuildConfig | None, list[Problem]]:
    """The configuration and its problems.

    Rules between keys are checked even where some values are wrong, as far as the rule needs only right ones,
    so that one run shows all there is to mend. For that the wrong values make way for defaults; the
    configuration that comes back is then fit for more checks but not for use.
    """
    try:
        config = BuildConfig.model_validate(values)
    except ValidationError as error:
        explained = explain(error.errors(include_url=False))
    else:
        return config, cross_problems(config)
    problems = [problem for _, problem in explained]
    wrong = [key for problem in problems for key in problem.keys]
    salvaged = _salvage(values, [location for location, _ in explained])
    if salvaged is None:
        return None, problems
    rules = [rule for rule in cross_problems(salvaged) if not any(rule.concerns(key) for key in wrong)]
    return salvaged, problems + rules


def _salvage(values: dict[str, object], wrong: list[Location]) -> BuildConfig | None:
    """The configuration that is left without the values at `wrong`, None where too little is left."""
    for _ in range(2):
        # Twice, because the keys of an unknown backend turn out wrong only when its name has gone.
        values = _without(values, wrong)
        try:
            return BuildConfig.model_validate(values)
        except ValidationError as error:
            wrong = [location for location, _ in explain(error.errors(include_url=False))]
    return None


def _without(values: dict[str, object], wrong: list[Location]) -> dict[str, object]:
    """`values` without the values at `wrong`, and with what a configuration cannot do without."""
    right = copy.deepcopy(values)
    for location in wrong:
        *parents, last = [part for part in location if isinstance(part, str)]
        section: object = right
        for parent in parents:
            section = section.get(parent) if isinstance(section, dict) else None
        if isinstance(section, dict):
            section.pop(last, None)
    speculative = right.setdefault("speculative_config", {})
    if isinstance(speculative, dict):
        speculative.setdefault("num_speculative_tokens", 1)
    return right


def _find_files(config: BuildConfig, base: Path) -> tuple[BuildConfig, list[Problem]]:
    """`config` with absolute paths, and a problem for each file that does not exist."""
    problems: list[Problem] = []

    def find(key: str, given: Path | None) -> Path | None:
        if given is None:
            return None
        try:
            given = given.expanduser()
            found = [candidate for candidate in (given, base / given) if candidate.is_file()]
        # No such home, or a name that no file system takes
        except (RuntimeError, OSError, ValueError):
            found = []
        if found:
            # Not resolve(): a virtual environment's python is a symbolic link that must stay one.
            return Path(os.path.abspath(found[0]))
        tried = str(given) if given.is_absolute() else f"neither {given} nor {base / given}"
        problems.append(
            Problem(
                (key,),
                f"{key} names a file that does not exist",
                expected="a path relative to the current directory or to the YAML's folder",
                found=tried,
                repair=f"correct the path in {key}",
            )
        )
        return given

    update: dict[str, object] = {
        "target_config_path": find("model_config", config.target_config_path),
        "draft_config_path": find("draft_config", config.draft_config_path),
    }
    if isinstance(config.backend, NeuronBackend):
        python = find("backend.python", config.backend.python)
        update["backend"] = config.backend.model_copy(update={"python": python})
    return config.model_copy(update=update), problems


def _parse(override: str) -> tuple[list[str], object]:
    if not is_text(override):
        raise UsageError(
            "an override is not Unicode text",
            expected="UTF-8",
            found=show(override),
            repair="name files by paths that are UTF-8",
        )
    key, equals, text = override.partition("=")
    keys = key.strip().split(".")
    if not equals or not all(keys):
        raise UsageError(
            "an override is not KEY=VALUE",
            expected="for example speculative_config.num_speculative_tokens=3",
            found=show(override),
            repair="write the key's path, '=' and the value",
        )
    try:
        value = yaml.safe_load(text)
        return keys, text_keys(value) if isinstance(value, dict) else value
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UsageError(
            f"the value of override {key} is not valid YAML",
            found=show(text),
            repair="quote the value",
        ) from None


def _assign(values: dict[str, object], keys: list[str], value: object) -> None:
    section = values
    for key in keys[:-1]:
        inner = section.get(key)
        inner = dict(inner) if isinstance(inner, dict) else {}
        section[key] = inner
        section = inner
    section[keys[-1]] = value
