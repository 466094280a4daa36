"""A configuration as manifests and cache keys hold it."""

from __future__ import annotations

from aot.config.fields import BuildConfig


def resolved(config: BuildConfig) -> dict[str, object]:
    """`config` as plain JSON with every default filled in, the same on every machine.

    The bundle's name, model references and paths are left out: they do not change a graph, and what they
    refer to is identified by content elsewhere. With those keys put back, `BuildConfig.model_validate` gives
    `config` again.
    """
    plain: dict[str, object] = config.model_dump(
        mode="json",
        by_alias=True,
        exclude={
            "name": True,
            "model": True,
            "target_config_path": True,
            "draft_config_path": True,
            "speculative_config": {"model"},
            "backend": {"python"},
        },
    )
    plain["kv_blocks"] = config.num_kv_blocks
    return plain
