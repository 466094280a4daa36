"""The published JSON Schema is the one that the code would write, and describes every key."""

from __future__ import annotations

from pathlib import Path

import yaml

from aot.config.explain import known_keys
from aot.config.schema import config_schema, schema_text

REPOSITORY = Path(__file__).parents[3]


def test_the_published_schema_is_up_to_date() -> None:
    """After a change of the keys: python -m aot.config.schema > schemas/config.schema.json"""
    assert (REPOSITORY / "schemas/config.schema.json").read_text() == schema_text()


def test_the_schema_uses_the_yaml_s_names_and_refuses_others() -> None:
    schema = config_schema()
    properties = schema["properties"]
    assert isinstance(properties, dict)
    assert set(properties) == {path for path in known_keys() if "." not in path}
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["speculative_config"]
    for path in sorted((REPOSITORY / "configs").glob("*.yaml")):
        assert set(yaml.safe_load(path.read_text())) <= set(properties)


def test_every_key_says_what_it_is() -> None:
    assert [path for path, field in known_keys().items() if not field.description] == []
