"""Plans, drafts and bundles as lines and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aot.backends.protocol import BuildBackend
from aot.build.plan import Plan, kv_bytes, weight_bytes
from aot.checkpoint.draft import DraftConfig
from runtime.bundle.manifest import Manifest
from runtime.bundle.neff import Neff
from runtime.bundle.schedule import KSchedule

if TYPE_CHECKING:
    from aot.verify.probe import Meaning

# What a bundle can do about sampling, in words
SAMPLING = {
    "greedy": "greedy, in the graphs",
    "logits": "any, by the host: the graphs return logits",
    "random": "greedy and random, in the graphs",
}


def plan_json(plan: Plan, backend: BuildBackend) -> dict[str, Any]:
    """The plan for machines."""
    return {
        "name": plan.config.name,
        "graphs": [graph.name for graph in plan.table.graphs],
        "units": [
            {"name": unit.spec.name, "key": unit.key, "hit": unit.hit, "reason": unit.reason} for unit in plan.units
        ],
        "toolchain": dict(backend.describe()),
        "estimates": {
            "weights_bytes": weight_bytes(plan.models, plan.geometry.dtype),
            "kv_bytes": kv_bytes(plan.geometry),
            "compile_core_seconds": round(sum(backend.unit_seconds(unit.spec) for unit in plan.misses)),
        },
    }


def plan_lines(plan: Plan, backend: BuildBackend) -> Iterator[str]:
    """The plan for people."""
    sizes = plan.geometry
    yield (
        f"{plan.config.name}: {len(plan.table.graphs)} graphs from {len(plan.units)} units, "
        f"K={sizes.num_speculative_tokens}{_by_batch(sizes.schedule)}, "
        f"{sizes.dtype}, {backend.summary()}"
    )
    for unit in plan.units:
        yield f"  {'hit ' if unit.hit else 'miss'}  {unit.spec.name:<28} {unit.key[:12]}  {unit.reason}".rstrip()
    estimate = plan_json(plan, backend)["estimates"]
    yield (
        f"Estimated: weights {estimate['weights_bytes'] / 1e6:.0f} MB, KV pool {estimate['kv_bytes'] / 1e6:.0f} MB "
        f"({sizes.num_blocks} blocks of {sizes.block_size}){_each(estimate, sizes.ranks)}, "
        f"compiling {estimate['compile_core_seconds']} core-seconds"
    )


def _each(estimate: dict[str, Any], ranks: int) -> str:
    """What one of several ranks holds of both."""
    if ranks == 1:
        return ""
    return f" over {ranks} ranks, {(estimate['weights_bytes'] + estimate['kv_bytes']) / ranks / 1e9:.1f} GB each"


def _by_batch(schedule: KSchedule | None) -> str:
    """ " (1-2: 3, 3-4: 1)", the drafts of each range of batch sizes; nothing where there is no schedule."""
    if schedule is None:
        return ""
    spans = [(f"{first}" if first == last else f"{first}-{last}", k) for first, last, k in schedule.ranges]
    return f" ({', '.join(f'{span}: {k}' for span, k in spans)})"


def draft_lines(config: DraftConfig) -> Iterator[str]:
    """A draft for people: every field with who decided it, then what was taken rather than stated."""
    for field in dataclasses.fields(config):
        if field.name in ("sources", "notes"):
            continue
        value = getattr(config, field.name)
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        yield f"  {field.name:<24} {config.sources[field.name]:<9} {shown}".rstrip()
    for note in config.notes:
        yield f"note: {note}"


def meaning_line(meaning: Meaning) -> str:
    """What a probe saw under one meaning of the draft's layer ids, for people."""
    facts = meaning_json(meaning)
    rates = " ".join(f"{rate:.2f}" for rate in facts["acceptance_rate_per_pos"]) or "none"
    return (
        f"{meaning.semantic:<9}  layers {', '.join(map(str, meaning.positions))}  acceptance length "
        f"{facts['mean_acceptance_length']:.2f}, per position {rates}, over {meaning.stats.num_drafts} steps"
    )


def meaning_json(meaning: Meaning) -> dict[str, Any]:
    """The same for machines."""
    stats = meaning.stats
    return {
        "aux_semantic": meaning.semantic,
        "positions": list(meaning.positions),
        "num_drafts": stats.num_drafts,
        "mean_acceptance_length": stats.mean_acceptance_length,
        "acceptance_rate_per_pos": [count / stats.num_drafts for count in stats.num_accepted_tokens_per_pos],
    }


def bundle_lines(manifest: Manifest, path: str = "DIR") -> Iterator[str]:
    """A bundle for people; `path` is its folder as the user named it."""
    total = sum(entry.size for entry in manifest.files.values())
    promise = manifest.exactness
    across = " and ".join(promise.bitwise_across) or "no bucket axis"
    yield f"{manifest.name}  {manifest.state}  {manifest.bundle_id[:16]}  {total / 1e6:.0f} MB  by {manifest.builder}"
    yield f"  target   {manifest.target.reference}  {manifest.target.fingerprint[:16]}"
    yield f"  draft    {manifest.draft.reference}  {manifest.draft.fingerprint[:16]}"
    yield (
        f"  limits   max_model_len {manifest.limits.max_model_len}, max_num_seqs {manifest.limits.max_num_seqs}, "
        f"K {manifest.speculation.num_speculative_tokens}{_by_batch(manifest.speculation.schedule)}, {manifest.dtype}"
    )
    layers = ", ".join(map(str, manifest.speculation.aux_layers))
    yield f"  aux      {f'inputs of layers {layers}' if layers else 'none, the final normed state'}"
    if d2t := manifest.draft.config.get("d2t_sha256"):
        head = manifest.draft.config.get("lm_head_sha256", "not recorded")
        yield f"  d2t      {str(d2t)[:16]}, head {str(head)[:16]}"
    yield f"  promise  {promise.lossless}; {promise.scripted_patterns} scripted patterns; bits kept across {across}"
    yield f"  sampling {SAMPLING[manifest.sampling]}"
    if manifest.requires.backend == "neuron":
        yield from _neuron_lines(manifest, path)
    else:
        yield _requires_line(manifest)
    for graph in manifest.graphs:
        error = f"max error {graph.check.max_abs_error:.2g}" if graph.check else "not checked"
        yield f"  graph    {graph.name:<26} {len(graph.calls):>3} calls  {error}"


def _requires_line(manifest: Manifest) -> str:
    needs = " ".join(manifest.requires.cpu_features) or "any CPU"
    return (
        f"  requires {manifest.requires.machine} {manifest.requires.system}, torch {manifest.requires.torch}, {needs}"
    )


def _neuron_lines(manifest: Manifest, path: str) -> Iterator[str]:
    requires = manifest.requires
    yield f"  requires {requires.device} {requires.system}, lnc {requires.lnc}, ranks {requires.ranks}"
    yield f"  weights  {len(manifest.weights) or 'none: graphs alone'}"
    if manifest.state == "lowered":
        yield f"  compiler not compiled: eagle3-build finish --bundle {path}"
    else:
        tools = ", ".join(f"{name} {value}" for name, value in sorted(manifest.toolchain.items()) if "neuronx" in name)
        yield f"  compiler {tools or 'not recorded'}"
    for unit in manifest.units:
        if unit.neff is not None:
            yield _neff_line(unit.name, unit.neff)


def _neff_line(name: str, neff: Neff) -> str:
    mark = ", a stand-in that no device can run" if neff.stand_in else ""
    lnc = neff.lnc or "not recorded"
    return f"  neff     {name:<26} version {neff.version}, features {neff.feature_bits:#x}, lnc {lnc}{mark}"
