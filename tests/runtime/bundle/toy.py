"""A whole bundle of the toy pair on disk, sealed as the builder seals one, whose units are run by eager PyTorch.

In place of compiled code a unit.so holds its unit's name. `FileBackend` reads it, takes the module of that name and
binds the constants that the manifest lists to the weights in the bundle's files, as the AOTInductor backend does. So a
manifest that lies about a weight, a call or a size has its effect here, but for the segmentation fault.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aot.backends.aoti.backend import AotiBackend
from aot.backends.aoti.toolchain import Toolchain
from aot.build.assemble import list_files, write_manifest
from aot.build.scopes import scopes
from aot.build.store import WeightStore, wanted_layouts
from aot.graphs.modules import module
from aot.graphs.units import UnitSpec
from runtime.backends import Run
from runtime.bundle.errors import IntegrityError
from runtime.bundle.manifest import Constant, KVCache, Manifest, Unit, loads
from runtime.bundle.open import MANIFEST, Bundle, open_bundle
from runtime.bundle.unlisted import BUILD_RECORD
from runtime.engine import Engine
from runtime.fused import draft_proposer
from runtime.graphs import GraphSet
from runtime.pools import allocate_pools
from runtime.proposer import NoProposer
from runtime.request import Request
from runtime.weights import Weights
from tests.runtime.loop.rig import Shape, make_rig, prompt_of

BUILDER = AotiBackend(Toolchain("g++", "g++ 12", "x86-64-v3", (), "library", "2.13.0"))
# Two layers, a table of 16 tokens: a few milliseconds for a whole answer
SMALL = Shape(
    layers=4, k=2, max_model_len=32, max_num_seqs=2, prefill_tokens=(8,), num_seqs=(1, 2), context_tokens=(16, 32)
)
PROMPT, TOKENS = 7, 12

Data = dict[str, Any]


def constants_of(spec: UnitSpec) -> tuple[Constant, ...]:
    """The constants of a unit as its compiled code would name them."""
    with torch.device("meta"):
        unit = module(spec)
    constants = (
        Constant(name.replace(".", "_"), name, "plain", str(weight.dtype).removeprefix("torch."), tuple(weight.shape))
        for name, weight in unit.named_parameters()
    )
    return tuple(sorted(constants, key=lambda constant: constant.name))


def write_toy(folder: Path, shape: Shape = SMALL) -> Manifest:
    """Write the toy bundle of `shape` into `folder`, which must not exist."""
    rig = make_rig(shape)
    units = []
    for spec in rig.table.units:
        artifact = f"graphs/{spec.name}/unit.so"
        (folder / artifact).parent.mkdir(parents=True)
        (folder / artifact).write_text(spec.name)
        units.append(Unit(spec.name, artifact, "0" * 64, constants_of(spec), spec.inputs, spec.outputs))
    calls = [call for graph in rig.table.graphs for call in graph.calls]
    store = WeightStore(
        folder / "weights", wanted_layouts(calls, {unit.name: unit for unit in units}, BUILDER), BUILDER
    )
    for scope, tensors in scopes(rig.geometry, rig.target_weights, rig.draft_weights):
        store.add(scope, tensors)
    manifest = replace(
        rig.manifest,
        builder="toy",
        requires=BUILDER.requires("x86_64", "linux"),
        units=tuple(units),
        weights=store.references,
        files=list_files(folder),
    )
    (folder / BUILD_RECORD).write_text("{}")
    return write_manifest(folder, manifest)


def forge(folder: Path, edit: Callable[[Data], object]) -> None:
    """Edit the manifest of the bundle in `folder`, and seal it again with the id of its new content, as a forger would.

    `edit` changes the parsed JSON in place.
    """
    data = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    edit(data)
    seal(folder, data)


def seal(folder: Path, data: Data) -> None:
    """Write `data` as the manifest of the bundle in `folder`, with the id of this content.

    What is no manifest in structure has no id, and is written as it is.
    """
    try:
        text = loads(data).with_id().dumps()
    except IntegrityError:
        text = json.dumps(data)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def copy_of(bundle: Path, folder: Path) -> Path:
    """A copy of a bundle at `folder` whose files, the manifest aside, are hard links."""
    shutil.copytree(bundle, folder, copy_function=lambda source, target: Path(target).hardlink_to(source))
    content = (bundle / MANIFEST).read_bytes()
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).write_bytes(content)
    return folder


class FileBackend:
    """Runs a toy bundle's units by eager PyTorch, with what its files hold."""

    def __init__(self, bundle: Bundle, weights: Weights, shape: Shape = SMALL) -> None:
        self._bundle, self._weights = bundle, weights
        self._specs = {spec.name: spec for spec in make_rig(shape).table.units}

    def open(self, unit: Unit, scope: str) -> Run:
        spec = self._specs[self._bundle.read(unit.artifact).decode()]
        bound = self._weights.bind(scope, unit.constants)
        code = {constant.name: constant for constant in constants_of(spec)}
        if code.keys() != bound.keys():  # what the AOTInductor backend asks the compiled code
            raise IntegrityError("The code has other constants")
        eager = self._module(spec)
        eager.load_state_dict({code[name].weight: tensor for name, tensor in bound.items()}, strict=True, assign=True)
        eager.requires_grad_(False)

        def run(inputs: Sequence[Tensor]) -> list[Tensor]:
            with torch.no_grad():
                made = eager(*inputs)
            return list(made) if isinstance(made, tuple) else [made]

        return run

    @staticmethod
    def _module(spec: UnitSpec) -> nn.Module:
        with torch.device("meta"):
            return module(spec)

    def pools(self, cache: KVCache, num_blocks: int) -> Mapping[str, Tensor]:
        return allocate_pools(cache, num_blocks)


def answer(folder: Path, shape: Shape = SMALL, *, plain: bool = False) -> list[list[int]]:
    """What the bundle in `folder` answers to two prompts in one batch, speculating, or token by token.

    Raises:
        Eagle3Error: it is refused.
    """
    bundle = open_bundle(folder, host=False)
    kinds = dict.fromkeys(graph.kind for graph in bundle.manifest.graphs)
    weights = Weights(bundle)
    graphs = GraphSet(bundle, list(kinds), backend=FileBackend(bundle, weights, shape))
    engine = Engine(graphs, NoProposer() if plain else draft_proposer(graphs))
    return [list(output.token_ids) for output in engine.generate(list(requests()))]


def requests() -> tuple[Request, ...]:
    return tuple(Request(f"{start}", prompt_of(PROMPT, start), max_tokens=TOKENS) for start in (0, 5))


@lru_cache(maxsize=8)
def right(shape: Shape = SMALL) -> list[list[int]]:
    """The plain greedy answers to the same prompts, by the reference."""
    rig = make_rig(shape)
    return [rig.plain(list(request.prompt_token_ids), TOKENS) for request in requests()]
