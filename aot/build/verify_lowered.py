"""Verify a staged Neuron bundle on this machine's CPU, and seal what was seen into its manifest."""

from __future__ import annotations

import dataclasses
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aot.backends.neuron.backend import CHECK, NeuronBackend
from aot.backends.neuron.chain import ChainSpec
from aot.build.assemble import write_manifest
from aot.build.padding import pad_draft_scope, pad_target_scope
from aot.build.plan import Plan, weight_bytes
from aot.build.scopes import Scope, scopes
from aot.build.sharding import shard
from aot.cache import Cache
from aot.checkpoint.random_weights import random_draft_weights, random_target_weights
from aot.graphs.geometry import Geometry
from aot.graphs.modules import dtype_of
from aot.graphs.reduced import reduced
from runtime.bundle.errors import CompileError, Eagle3Error, ErrorGroup
from runtime.bundle.manifest import Check, Manifest

if TYPE_CHECKING:
    from torch import Tensor

    from aot.verify.lockstep import Lockstep
    from aot.verify.scripted import Scripted

# Above this a model's own weights are not run on the CPU: a whole pass would take minutes, and the memory twice over
MOST_WEIGHT_BYTES = 2 << 30
PROMPT_TOKENS, NEW_TOKENS = 40, 12


class ScopeWeights:
    """Weights for a simulator out of the scopes of one device: padded, whole or the parts of ranks, made when asked."""

    def __init__(self, held: Mapping[str, Scope], sizes: Geometry) -> None:
        self._held, self._sizes = held, sizes

    def get(self, name: str, layout: str) -> Tensor:
        """The weight of full name `name`, whole ("plain") or the part of one rank ("shard.3")."""
        scope = next(scope for scope in self._held if name.startswith(f"{scope}."))
        own = name.removeprefix(f"{scope}.")
        pad = pad_draft_scope if scope == "draft" else pad_target_scope
        weight = pad({own: self._held[scope][own]}, self._sizes)[own]
        if layout == "plain":
            return weight
        part: Tensor = shard(scope, own, weight, int(layout.rpartition(".")[2]), self._sizes)
        return part.contiguous()


def verify_lowered(
    staging: Path,
    manifest: Manifest,
    plan: Plan,
    backend: NeuronBackend,
    cache: Cache,
    weights: tuple[Mapping[str, Tensor], Mapping[str, Tensor]] | None,
    say: Callable[[str], None],
) -> Manifest:
    """Check every graph with few layers, and where weights are at hand and small, as it is and in the loop.

    Args:
        weights: target's and draft's under the checkpoints' names; None for graphs alone.

    Raises:
        CompileError: a lowered graph computes something else than the model.
        HostError: the simulator is not installed.
    """
    from aot.verify.lowered import with_checks

    checks = check_reduced(plan, backend, cache)
    worst = max((check.max_abs_error for check in checks.values()), default=0.0)
    say(f"Ran {len(checks)} lowered graphs with few layers on XLA:CPU against eager PyTorch, largest error {worst:.2g}")
    if weights is not None and weight_bytes(plan.models, plan.geometry.dtype) <= MOST_WEIGHT_BYTES:
        whole = check_whole(staging, manifest, plan, weights)
        checks |= whole
        say(f"Ran {len(whole)} of them with the bundle's weights in the loop, as close to float32 as eager PyTorch")
        manifest = write_manifest(staging, with_checks(manifest, checks))
        if manifest.exactness.lossless == "exact":
            scripted = run_scripted(staging, manifest)
            promise = dataclasses.replace(manifest.exactness, scripted_patterns=scripted.patterns)
            manifest = write_manifest(staging, dataclasses.replace(manifest, exactness=promise))
            say(scripted.sentence("lowered"))
        return manifest
    return write_manifest(staging, with_checks(manifest, checks))


def check_reduced(plan: Plan, backend: NeuronBackend, cache: Cache) -> dict[str, Check]:
    """Every graph with few layers and random weights."""
    from aot.verify.lowered import Reference, alone, checked, sim_backend

    sizes = reduced(plan.geometry)
    dtype = dtype_of(sizes.dtype)
    raw = (random_target_weights(sizes.target, 0, dtype), random_draft_weights(sizes.draft, 1, dtype))
    held = dict(scopes(alone(sizes), *raw))
    del raw
    reference = Reference.make(alone(sizes), held)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        units = {}
        for planned in plan.units:
            spec = planned.spec
            if isinstance(spec, ChainSpec) and spec.check is not None:
                entry = cache.take(planned.key, root / "entries" / spec.name)
                artifact = f"{spec.name}.hlo"
                shutil.copyfile(entry / CHECK, root / artifact)
                units[spec.name] = backend.unit(spec.check, planned.key, artifact, entry, "check")
        sim = sim_backend(root, reference, list(units.values()), ScopeWeights(held, sizes), sizes.ranks)
        what = f"{sizes.target.num_layers} layers with random weights on XLA:CPU"
        found = checked(list(units), reference, sim, units, what)
    return judged(found, sizes.dtype)


def check_whole(
    staging: Path, manifest: Manifest, plan: Plan, weights: tuple[Mapping[str, Tensor], Mapping[str, Tensor]]
) -> dict[str, Check]:
    """The graphs of the bundle that its loop runs, with its weights, while the loop runs on the simulator.

    Raises:
        CompileError: a pass is farther from the model in float32 than eager PyTorch is.
    """
    from aot.verify.lockstep import Lockstep
    from aot.verify.lowered import alone
    from runtime.bundle.open import Bundle
    from runtime.engine import Engine
    from runtime.judge import Known
    from runtime.request import Request
    from runtime.sampling.params import GREEDY, SamplingParams
    from runtime.scripted import PatternProposer

    sizes = alone(plan.geometry)
    lockstep = Lockstep.make(sizes, dict(scopes(sizes, *weights)), plan.geometry.ranks)
    engine = Engine.load(Bundle(staging, manifest), device="sim")
    engine.graphs.wrap(lambda graph: lockstep.watch(graph, engine.graphs.pools))
    numbers, room = random.Random(0), sizes.max_model_len
    length = max(1, min(PROMPT_TOKENS, room - 2))
    prompts = [tuple(numbers.randrange(sizes.target.vocab_size) for _ in range(length)) for _ in range(2)]
    # One of the two draws its tokens, where the graphs can
    random_too = SamplingParams(temperature=1.0, seed=0) if manifest.sampling == "random" else GREEDY
    asked = (GREEDY, random_too)
    requests = [Request(str(i), prompt, NEW_TOKENS, True, asked[i]) for i, prompt in enumerate(prompts)]
    outputs = engine.generate(requests)
    # The draft's own drafts may all be wrong, so that nothing is ever accepted: once more with right ones among them
    known = {output.request_id: Known(output.prompt_token_ids + output.token_ids) for output in outputs}
    k = manifest.speculation.num_speculative_tokens
    patterns = {name: tuple(range(k, -1, -1)) for name in known}
    engine.beside(PatternProposer(known, patterns, manifest.target.vocab_size, k)).generate(requests)
    return judged_lockstep(lockstep)


def judged_lockstep(lockstep: Lockstep) -> dict[str, Check]:
    """The checks of graphs that were watched.

    Raises:
        CompileError, ErrorGroup: some are not as close to the model as they should be.
    """
    problems: list[Eagle3Error] = [
        CompileError(
            f"Graph {name} with the bundle's weights is farther from the model in float32 than eager PyTorch is",
            expected=f"a relative error of at most {watched.allowed:.3g}, equal tokens but for near ties, and no other "
            "KV row written",
            found=f"{watched.error:.3g}, tokens {'equal' if watched.tokens_equal else 'different'}, other KV rows "
            f"{'kept' if watched.kept_kv else 'changed'}",
            repair="this is a defect of torch-xla or the builder; please report it with build.json",
        )
        for name, watched in lockstep.seen.items()
        if not watched.right
    ]
    if problems:
        raise problems[0] if len(problems) == 1 else ErrorGroup("Lowered graphs are wrong", problems)
    return {name: seen.check("its own weights, in the loop on XLA:CPU") for name, seen in lockstep.seen.items()}


def run_scripted(staging: Path, manifest: Manifest) -> Scripted:
    """The scripted accept and reject patterns through the loop on the simulator."""
    from aot.verify.scripted import check_scripted
    from runtime.bundle.open import Bundle

    return check_scripted(Bundle(staging, manifest), device="sim")


def judged(found: Mapping[str, tuple[Check, float]], dtype: str) -> dict[str, Check]:
    """The checks of graphs that were compared, with the relative error of each.

    Raises:
        CompileError, ErrorGroup: some are too far from eager PyTorch.
    """
    from aot.verify.lowered import TOLERANCE

    problems: list[Eagle3Error] = [
        CompileError(
            f"Graph {name} was lowered to something that does not compute what eager PyTorch computes",
            expected=f"a relative error of at most {TOLERANCE[dtype]:g}, and equal tokens",
            found=f"{relative:.3g}, tokens {'equal' if check.tokens_equal else 'different'}",
            repair="this is a defect of torch-xla or the builder; please report it with build.json",
        )
        for name, (check, relative) in found.items()
        if relative > TOLERANCE[dtype] or not check.tokens_equal
    ]
    if problems:
        raise problems[0] if len(problems) == 1 else ErrorGroup("Lowered graphs are wrong", problems)
    return {name: check for name, (check, _) in found.items()}
