"""What one rank builds does not change when graphs learn something that only several ranks need."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from aot.build.models import read_models
from aot.config import load_config
from aot.graphs.geometry import geometry
from aot.graphs.table import graph_table

ROOT = Path(__file__).parents[3]
FIELDS = ("name", "kind", "dtype", "arguments", "inputs", "outputs")
# Taken before tensor parallelism came. A new digest means that every cached unit of the demo is compiled again
DEMO = "e7020a3e012d1f17f919c1aba54c18c89c42332984b3cdf09815e2ac372fca25"


def test_the_demo_s_units_are_described_as_ever() -> None:
    # As it was then: graphs that give tokens alone, one number of drafts, one prefill bucket
    config = load_config(
        ROOT / "configs" / "smollm2-135m.yaml",
        [
            "additional_config.neuron_config.on_device_sampling_config.all_greedy=true",
            "speculative_config.num_speculative_tokens_per_batch_size=null",
            "buckets.prefill_tokens=[128]",
        ],
    )
    models = read_models(config)
    units = graph_table(geometry(config, models.target, models.draft)).units
    plain = [{field: asdict(unit)[field] for field in FIELDS} for unit in units]
    assert hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest() == DEMO
