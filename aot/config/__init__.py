"""Configuration: a YAML file under vLLM's key names becomes one frozen `BuildConfig`, or every problem.

    fields.py       the keys, their types and what they mean
    defaults.py     values that follow from other values (buckets from max_model_len and max_num_seqs)
    yamlfile.py     strict YAML: line numbers, duplicate keys
    problems.py     one problem: the keys that it concerns, expected, found, repair
    explain.py      what pydantic found wrong, in one sentence each
    vllm_keys.py    vLLM keys that are not supported, and what to do instead
    limits.py       rules between keys, and between the keys and the model
    sharding.py     over how many ranks two models can be shared
    load.py         file and overrides in, BuildConfig out
    resolved.py     BuildConfig as manifests and cache keys hold it
    schema.py       the published JSON Schema

Nothing here imports torch or transformers: a wrong key is reported in a fraction of a second.
"""

from aot.config.fields import (
    AdditionalConfig,
    AotiBackend,
    Buckets,
    BuildConfig,
    NeuronBackend,
    NeuronConfig,
    OnDeviceSamplingConfig,
    RandomWeights,
    SpeculativeConfig,
)
from aot.config.limits import check_against_model
from aot.config.load import load_config
from aot.config.resolved import resolved
from aot.config.sharding import Heads, check_heads

__all__ = [
    "AdditionalConfig",
    "AotiBackend",
    "Buckets",
    "BuildConfig",
    "Heads",
    "NeuronBackend",
    "NeuronConfig",
    "OnDeviceSamplingConfig",
    "RandomWeights",
    "SpeculativeConfig",
    "check_against_model",
    "check_heads",
    "load_config",
    "resolved",
]
