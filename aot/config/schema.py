"""The JSON Schema of the configuration, published as schemas/config.schema.json for editors and programs.

Written anew with `python -m aot.config.schema > schemas/config.schema.json`; a test compares the two. A
schema knows single keys only; rules between keys are checked by `eagle3-build plan`.
"""

from __future__ import annotations

import json
import sys

from aot.config.fields import BuildConfig


def config_schema() -> dict[str, object]:
    """The schema (JSON Schema 2020-12) of the YAML file."""
    schema = BuildConfig.model_json_schema(by_alias=True)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "EAGLE3 bundle configuration",
        "description": "Input of eagle3-build.",
    }
    return {**schema, **head}


def schema_text() -> str:
    """The schema as the file holds it."""
    return json.dumps(config_schema(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
