"""Strict YAML: lines, doubled keys, and files that are no configuration at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aot.config.yamlfile import read_yaml
from runtime.bundle.errors import ConfigError, render


def refusal(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_yaml(path)
    return [line.replace(str(path), "FILE") for line in render(caught.value)]


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "demo.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_every_key_and_item_has_its_line(tmp_path: Path) -> None:
    file = read_yaml(write(tmp_path, "a: 1\nb:\n  c: [4,\n      5]\n"))
    assert file.values == {"a": 1, "b": {"c": [4, 5]}}
    assert file.places == {
        "a": "line 1",
        "b": "line 2",
        "b.c": "line 3",
        "b.c[0]": "line 3",
        "b.c[1]": "line 4",
    }


def test_a_doubled_key_names_both_lines(tmp_path: Path) -> None:
    file = read_yaml(write(tmp_path, "a:\n  b: 1\n  c: 2\n  b: 3\n"))
    (problem,) = file.problems
    assert problem.error(file.places).sentence() == (
        "a.b is given twice (line 2): expected each key once, found it at line 2 and line 4."
    )


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "smollm2-135m.yaml").touch()
    assert refusal(tmp_path / "smollm-135m.yaml") == [
        "error: FILE does not exist.",
        f"hint: did you mean {tmp_path / 'smollm2-135m.yaml'}?",
    ]
    assert refusal(tmp_path / "nothing/alike.yaml") == [
        "error: FILE does not exist.",
        "hint: check the path given with --config",
    ]


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    assert refusal(tmp_path)[0] == ("error: FILE cannot be read: expected a readable YAML file, found Is a directory.")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "FILE does not hold a mapping: expected key: value lines, found an empty file."),
        ("- a\n- b\n", "FILE does not hold a mapping: expected key: value lines, found ['a', 'b']."),
        ("just words", "FILE does not hold a mapping: expected key: value lines, found 'just words'."),
        (
            "a: 1\nb: [1, 2\n",
            "FILE is not valid YAML at line 3, column 1: found expected ',' or ']', but got '<stream end>'.",
        ),
        ("a: b: c", "FILE is not valid YAML at line 1, column 5: found mapping values are not allowed here."),
        (
            "a: &x 1\nb: *x\n",
            "FILE is not valid YAML at line 2, column 4: found aliases (*name) are not read.",
        ),
        (
            "a: !!python/object/apply:os.getcwd []",
            "FILE is not valid YAML at line 1, column 4: found could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/object/apply:os.getcwd'.",
        ),
        ("a: 2024-99-99", "FILE is not valid YAML: found month must be in 1..12."),
        ("a: " + "[" * 5000, "FILE is not valid YAML: found values are nested too deep."),
    ],
)
def test_what_is_not_a_mapping_is_refused_with_its_place(tmp_path: Path, text: str, sentence: str) -> None:
    assert refusal(write(tmp_path, text))[0] == f"error: {sentence}"


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    assert refusal(write(tmp_path, b"a: \xff\xfe"))[0].startswith("error: FILE is not valid YAML: found ")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet="ab:-[]{}&*!?|>'\"#%@, \n\t01", max_size=60).map(str.encode))
def test_any_bytes_give_a_mapping_or_a_config_error(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path, content)
    try:
        file = read_yaml(path)
    except ConfigError:
        return
    assert set(file.values) == {str(key) for key in yaml.safe_load(content)}
