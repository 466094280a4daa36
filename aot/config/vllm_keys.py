"""vLLM keys that people paste and that have no effect here yet, each with what to do instead.

They are refused, not ignored: a key that changes what a model computes (quantization, rope_scaling) must not
be dropped in silence.
"""

from __future__ import annotations

_REMOVE = "remove it"

UNSUPPORTED: dict[str, str] = {
    "compilation_config": "remove it; every graph is compiled ahead of time",
    "cpu_offload_gb": _REMOVE,
    "data_parallel_size": "remove it; start one eagle3-run per replica",
    "disable_log_stats": "remove it; use eagle3-run --stats",
    "enable_chunked_prefill": "remove it; long prompts always run in chunks of buckets.prefill_tokens",
    "enable_expert_parallel": _REMOVE,
    "enable_lora": "remove it; merge the adapter into the checkpoint",
    "enable_prefix_caching": _REMOVE,
    "enforce_eager": "remove it; every graph is compiled ahead of time",
    "gpu_memory_utilization": "remove it; set kv_blocks for the size of the KV pool",
    "hf_overrides": "remove it; point model_config at an edited config.json",
    "kv_cache_dtype": "remove it; the KV cache has the type that dtype names",
    "load_format": "remove it; the format is read from the checkpoint",
    "max_num_batched_tokens": "remove it; the largest buckets.prefill_tokens is the budget of one pass",
    "num_gpu_blocks_override": "remove it and set kv_blocks",
    "override_neuron_config": "remove it and set additional_config.neuron_config",
    "pipeline_parallel_size": "remove it",
    "quantization": "remove it and name an unquantized checkpoint",
    "revision": "remove it and name a downloaded folder",
    "rope_scaling": "remove it; it is read from the checkpoint",
    "rope_theta": "remove it; it is read from the checkpoint",
    "seed": "remove it; sampling is seeded per request",
    "served_model_name": "remove it and set name",
    "swap_space": _REMOVE,
    "tokenizer": "remove it; the bundle takes the target's tokenizer",
    "tokenizer_mode": _REMOVE,
    "trust_remote_code": "remove it; code from a checkpoint is never run",
    "speculative_config.disable_by_batch_size": _REMOVE,
    "speculative_config.draft_tensor_parallel_size": "remove it; the draft is sharded as the target is",
    "speculative_config.max_model_len": "remove it; the draft follows the top-level max_model_len",
    "speculative_config.parallel_drafting": _REMOVE,
    "speculative_config.prompt_lookup_max": _REMOVE,
    "speculative_config.prompt_lookup_min": _REMOVE,
    "speculative_config.quantization": "remove it and name an unquantized draft",
    "speculative_config.revision": "remove it and name a downloaded folder",
    "speculative_config.speculative_token_tree": "remove it; the draft proposes one chain",
}
