"""The manifest: everything a runtime must know of a bundle, as small frozen dataclasses.

A **graph** is what the loop calls: one pass at one bucket, static rows, named inputs and outputs. It is a straight
line of **calls**. A call runs one **unit**, a compiled module, with the weights of one scope
(`target.layers.7`), so thirty layers are thirty calls of one unit. On Neuron a graph has a single call of a unit that
is the whole graph; what its file takes and gives is listed in order (`interface.py`), and its scope is "".

Names of values in a graph: its inputs, the outputs of earlier calls, and `kv.N.k` / `kv.N.v`, the KV pool of layer N,
[num_blocks, block_size, kv_heads, head_dim], which a call updates in place. Target layers are 0..N-1, draft layers
follow under the same block table. Where several ranks share the model, `rank` is the number of the one that runs, [1]
int32, and shapes are those of one rank.

What each number and name can be is said at its field (`ranges.py`); what the parts say of one another is compared when
the bundle is opened (`contradictions.py`).

A unit's **constant** is bound to the weight `scope + "." + constant.weight` in the layout that the compiled code wants
(`plain`, or a packed one). Weights are stored once by content, however many units and layouts share them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from runtime.bundle.dtypes import Dtype, FloatDtype
from runtime.bundle.errors import IntegrityError
from runtime.bundle.interface import Parameter, Result
from runtime.bundle.neff import Neff
from runtime.bundle.ranges import Ascending, Between, Entries, Matching, OneOf
from runtime.bundle.record import added, from_json, to_json
from runtime.bundle.schedule import KSchedule

# 1: until `accepted` had signs (signs.py)
FORMAT_VERSION = 2

# Slots and positions are int32, and so is everything that is counted in tokens
MOST_TOKENS = 2**31 - 1
BACKENDS = ("aoti", "neuron")

Tokens = Annotated[int, Between(1, MOST_TOKENS)]
Count = Annotated[int, Between(1, 2**16)]
Layer = Annotated[int, Between(0, 2**16)]
TokenId = Annotated[int, Between(0, MOST_TOKENS)]
# Part of a file's name in the bundle
Name = Annotated[str, Matching(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,199}", "a name of letters, digits, '.', '_' and '-'")]
Text = Annotated[str, Entries(0, 4096)]
Relative = Annotated[str, Entries(1, 2**16)]
Sha256 = Annotated[str, Matching("[0-9a-f]{64}", "64 hexadecimal digits")]
Layout = Annotated[
    str, Matching(r"[a-z][a-z0-9_]{0,63}(\.[0-9]{1,5})?", "a layout's name, as plain, block32_pair2 or shard.0")
]
BucketSizes = Annotated[tuple[Tokens, ...], Entries(1, 1000), Ascending()]

# A dimension is a number, or the name of one that the caller chooses up to the unit's bound: "context_blocks".
Dim = Annotated[int, Between(0, 2**40)] | Annotated[str, OneOf(("context_blocks", "num_blocks"))]
Shape = Annotated[tuple[Dim, ...], Entries(0, 8)]

GraphKind = Literal[
    "target_prefill",
    "target_verify",
    "target_decode",
    "draft_initial_prefill",
    "draft_initial",
    "draft_recurrent",
    "draft_fused_prefill",
    "draft_fused",
]
Axis = Literal["requests", "context", "drafts"]
# What the target's graphs do about sampling: choose the most probable token; also return logits, so that the host may
# draw; or draw tokens themselves
Sampling = Literal["greedy", "logits", "random"]
# The input of graphs that draw tokens themselves, beside temperature, top_k, top_p and min_p
UNIFORMS = "uniforms"


@dataclass(frozen=True)
class TensorSpec:
    """One value: its name, dtype ("int32", "bfloat16", ...) and shape."""

    name: Name
    dtype: Dtype
    shape: Shape


@dataclass(frozen=True)
class Constant:
    """A constant of a compiled unit: its name in the module, the weight it takes, and the layout it wants.

    dtype and shape are those of the stored tensor, so in that layout; of a weight that ranks share, one rank's.
    """

    name: Name
    weight: Name
    layout: Layout
    dtype: Dtype
    shape: Annotated[tuple[Annotated[int, Between(0, 2**40)], ...], Entries(0, 8)]


@dataclass(frozen=True)
class Unit:
    """A compiled module. `artifact` is a path in the bundle; inputs and outputs are in call order.

    `digest` is the key under which the build cache holds it: sha256 over the factors that decide its code.
    A Neuron unit's artifact is its HLO, `parameters` and `results` are the tables of that file, and `neff` is what the
    device compiler made of it, None in a bundle that is lowered only.
    """

    name: Name
    artifact: Relative
    digest: Annotated[str, Matching("[0-9a-f]{8,64}", "hexadecimal digits")]
    constants: tuple[Constant, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: tuple[Parameter, ...] = added(())
    results: tuple[Result, ...] = added(())
    neff: Neff | None = added(None)


@dataclass(frozen=True)
class Call:
    """Run `unit` with the weights of `scope` on values named `inputs`; its outputs are then known as `outputs`."""

    unit: Name
    scope: Annotated[str, Matching(r"[A-Za-z0-9_.]{0,199}", "a scope, as target.layers.7, or nothing")]
    inputs: tuple[Name, ...]
    outputs: tuple[Name, ...]


@dataclass(frozen=True)
class Check:
    """What the builder saw when it ran the compiled graph beside eager PyTorch on the same inputs and weights.

    max_abs_error: over the float outputs and the KV pools of every call, each on unit-normal inputs of its own;
    tokens_equal: whether all tokens agree but for near ties of the dtype.
    """

    reference: Text
    max_abs_error: Annotated[float, Between(0, float("inf"))]
    tokens_equal: bool


@dataclass(frozen=True)
class Graph:
    """One pass at one bucket. `rows` is requests * tokens per request; `context` is the KV width in tokens.

    Several target_verify and draft_initial graphs of one bucket differ in their rows: those of K drafts, and those of
    the other numbers that the schedule has for that bucket.
    """

    name: Name
    kind: GraphKind
    requests: Count
    rows: Tokens
    context: Tokens
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    calls: tuple[Call, ...]
    check: Check | None = None


@dataclass(frozen=True)
class WeightRef:
    """Where one weight lies: a tensor of a safetensors file in the bundle.

    content: sha256 over its dtype, shape and bytes as stored; weights of one content share a place.
    """

    file: Relative
    tensor: Annotated[str, Entries(1, 400)]
    content: Sha256


@dataclass(frozen=True)
class KVGroup:
    """KV geometry of `layers` consecutive layers, the first of which has index `first_layer`.

    `kv_heads` are those of one rank; where ranks outnumber a model's KV heads, several hold the same one.
    """

    role: Literal["target", "draft"]
    first_layer: Layer
    layers: Count
    kv_heads: Count
    head_dim: Count
    dtype: FloatDtype


@dataclass(frozen=True)
class KVCache:
    """One pool of `num_blocks` blocks per layer; block 0 is the null block, where padding rows write."""

    block_size: Tokens
    num_blocks: Annotated[int, Between(2, MOST_TOKENS)]
    groups: Annotated[tuple[KVGroup, ...], Entries(2, 2)]


@dataclass(frozen=True)
class Model:
    """A model that the bundle holds: how the user named it, a digest of its files, and its configuration."""

    reference: Text
    fingerprint: Text
    vocab_size: Tokens
    hidden_size: Tokens
    eos_token_ids: Annotated[tuple[TokenId, ...], Entries(0, 4096)]
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Speculation:
    """K and where the auxiliary states are tapped (residual-stream positions: k is the input of layer k).

    row_convention: "feature_i_token_i_plus_1_at_position_i", the only one known to this format.
    num_speculative_tokens_per_batch_size: what the bundle was built to use by default, see `KSchedule`; empty for K
    whatever the batch.
    """

    method: Literal["eagle3"]
    num_speculative_tokens: Annotated[int, Between(1, 2**10)]
    aux_layers: Annotated[tuple[Layer, ...], Entries(0, 64), Ascending()]
    row_convention: Text
    num_speculative_tokens_per_batch_size: Annotated[
        tuple[tuple[Annotated[int, Between(0, MOST_TOKENS)], ...], ...], Entries(0, 4096)
    ] = added(())

    @property
    def schedule(self) -> KSchedule | None:
        """The bundle's own schedule, if it has one.

        Raises:
            UsageError: it is none; a bundle that was opened has been checked for that.
        """
        ranges = self.num_speculative_tokens_per_batch_size
        return KSchedule.of(ranges, self.num_speculative_tokens) if ranges else None


@dataclass(frozen=True)
class Limits:
    max_model_len: Tokens
    max_num_seqs: Count


@dataclass(frozen=True)
class Buckets:
    prefill_tokens: BucketSizes
    num_seqs: BucketSizes
    context_tokens: BucketSizes

    def prefill_within(self, context: int) -> tuple[int, ...]:
        """The prefill buckets that a chunk can run in whose last row sees at most `context` entries.

        A chunk takes the smallest bucket that holds it, so it has more rows than the bucket before, and sees them all.
        """
        before = (0, *self.prefill_tokens)
        return tuple(size for least, size in zip(before, self.prefill_tokens, strict=False) if least < context)


@dataclass(frozen=True)
class Exactness:
    """What greedy speculation promises against plain greedy decoding, and why it may.

    lossless: "exact" when plain decoding runs through target_verify, "near_tie" when it has a graph of its own.
    bitwise_across: the bucket axes along which the builder saw verify rows keep every bit (also at every row index).
    A runtime that promises exactness moves between buckets during decoding only along these axes, and stays in the
    largest bucket of any other. "drafts" is the number of rows that a request has in a pass, where the bundle has
    graphs of several.
    context_widths: where "context" is not among the axes, the block-table widths in tokens that still keep every bit of
    the widest one; decoding takes these and no others. Empty means the widest alone.
    """

    lossless: Literal["exact", "near_tie"]
    bitwise_across: Annotated[tuple[Axis, ...], Entries(0, 3)]
    scripted_patterns: Annotated[int, Between(0, MOST_TOKENS)]
    context_widths: Annotated[tuple[Tokens, ...], Entries(0, 4096)] = ()


@dataclass(frozen=True)
class Requires:
    """What a host must have before anything native is loaded.

    device: "cpu", or for Neuron the instance family ("trn2"); machine, cpu_features, torch and amx are then empty.
    ranks: devices that share the model (tensor parallelism).
    lnc: physical cores per logical NeuronCore; 0 where that means nothing.
    """

    backend: Annotated[str, OneOf(BACKENDS)]
    device: Text
    machine: Text
    system: Text
    cpu_features: Annotated[tuple[Text, ...], Entries(0, 1000)]
    torch: Text
    amx: bool
    ranks: Count = added(1)
    lnc: Annotated[int, Between(0, 2)] = added(0)


@dataclass(frozen=True)
class FileEntry:
    size: Annotated[int, Between(0, 2**50)]
    sha256: Sha256


@dataclass(frozen=True)
class Manifest:
    """A bundle. `state` is "ready" when every graph is compiled and checked, "lowered" when NEFFs are still missing.

    `weights` is empty in a bundle of graphs alone, made from config.json files.
    """

    format_version: int
    bundle_id: Sha256
    name: Text
    state: Literal["ready", "lowered"]
    builder: Text
    dtype: FloatDtype
    target: Model
    draft: Model
    speculation: Speculation
    limits: Limits
    buckets: Buckets
    kv_cache: KVCache
    exactness: Exactness
    requires: Requires
    toolchain: Mapping[Text, Text]
    units: Annotated[tuple[Unit, ...], Entries(0, 10_000)]
    graphs: Annotated[tuple[Graph, ...], Entries(0, 10_000)]
    weights: Annotated[Mapping[Name, Annotated[Mapping[Layout, WeightRef], Entries(1, 10_000)]], Entries(0, 100_000)]
    files: Annotated[Mapping[Relative, FileEntry], Entries(0, 20_000)]

    @property
    def sampling(self) -> Sampling:
        """What the target's graphs do about sampling; their inputs and outputs say it, in every bundle ever built."""
        target = [graph for graph in self.graphs if graph.kind.startswith("target")]
        if any(value.name == UNIFORMS for graph in target for value in graph.inputs):
            return "random"
        return "logits" if any(value.name == "logits" for graph in target for value in graph.outputs) else "greedy"

    def dumps(self) -> str:
        """The manifest as the text of manifest.json; `loads(m.dumps()) == m`."""
        return json.dumps(to_json(self), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"

    def with_id(self) -> Manifest:
        """This manifest with `bundle_id` set to the sha256 over all its other content, files' digests included.

        Raises:
            IntegrityError: a text in it is no Unicode text, or a number is not finite.
        """
        body = to_json(self)
        del body["bundle_id"]
        try:
            text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except ValueError as error:  # of which UnicodeEncodeError, for a lone surrogate, is a kind
            raise IntegrityError(
                "The manifest holds a value that cannot be stored",
                expected="Unicode text and finite numbers",
                found=str(error),
                repair="rebuild the bundle with eagle3-build",
            ) from None
        digest = hashlib.sha256(text).hexdigest()
        return from_json(Manifest, {**body, "bundle_id": digest})


def loads(data: object) -> Manifest:
    """A manifest from parsed JSON; raises IntegrityError naming what does not fit."""
    return from_json(Manifest, data)
