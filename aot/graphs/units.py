"""Units: the modules that get compiled, described by numbers alone.

A `UnitSpec` says everything a compile worker needs, so it crosses process and machine borders as JSON and its text is
part of the cache key. A dimension given by name is dynamic: `context_blocks` (the block table's width) and `num_blocks`
(the KV pool's size) are chosen by the caller at run time; measured here, that costs neither speed nor a single bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime.bundle.manifest import UNIFORMS, TensorSpec

if TYPE_CHECKING:  # a lowering worker reads unit descriptions in an environment that lacks what the configuration needs
    from aot.graphs.geometry import Geometry

CONTEXT, POOL = "context_blocks", "num_blocks"
# The input that tells a rank which one it is, [1] int32: the first one of every unit that has it
RANK = "rank"


@dataclass(frozen=True)
class UnitSpec:
    """One module to compile.

    Attributes:
        name: unique in a plan; `target_layer.r4x4` is 4 requests with 4 rows each.
        kind: a key of `aot.graphs.modules.MODULES`.
        dtype: of weights and activations.
        arguments: the module's constructor arguments, dtype aside.
        inputs, outputs: in call order; the last inputs of a unit with KV are the key and value pool of each layer.
            With several ranks, shapes and arguments are those of one rank, and a unit that must know which one has
            `rank` as its first input.
    """

    name: str
    kind: str
    dtype: str
    arguments: Mapping[str, int | float | bool]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def _ints(name: str, *shape: int | str) -> TensorSpec:
    return TensorSpec(name, "int32", shape)


class UnitFactory:
    """Makes the unit specs of one geometry; the same rows give the same unit, whichever graph asks."""

    def __init__(self, geometry: Geometry) -> None:
        self.g = geometry

    def _pools(self, kv_heads: int, head_dim: int) -> tuple[TensorSpec, TensorSpec]:
        shape = (POOL, self.g.block_size, kv_heads, head_dim)
        return TensorSpec("key_pool", self.g.dtype, shape), TensorSpec("value_pool", self.g.dtype, shape)

    def _paging(self, requests: int, rows: int) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
        table = _ints("block_table", requests, CONTEXT)
        return _ints("positions", rows), _ints("slot_mapping", rows), table

    def _ranks(self) -> dict[str, int]:
        """The argument that only modules of several ranks are given."""
        return {"ranks": self.g.ranks} if self.g.ranks > 1 else {}

    def _rank(self) -> tuple[TensorSpec, ...]:
        return (_ints(RANK, 1),) if self.g.ranks > 1 else ()

    def _hidden(self, rows: int, name: str = "hidden") -> TensorSpec:
        return TensorSpec(name, self.g.dtype, (rows, self.g.target_hidden))

    def _auxiliary(self, rows: int) -> tuple[TensorSpec, ...]:
        return tuple(self._hidden(rows, f"aux_{i}") for i in range(self.g.draft.num_aux))

    def _real(self, *sizes: str) -> dict[str, int]:
        """The model's own hidden size and vocabulary, where the graphs' are padded."""
        t, padded = self.g.target, self.g.target_padding
        known = {"hidden": (t.hidden_size, padded.hidden), "vocab": (t.vocab_size, padded.vocab)}
        return {f"real_{size}": known[size][0] for size in sizes if known[size][1]}

    def embed(self, rows: int) -> UnitSpec:
        t = self.g.target
        return UnitSpec(
            name=f"target_embed.t{rows}",
            kind="target_embed",
            dtype=self.g.dtype,
            arguments={
                "vocab": self.g.per_rank(self.g.target_vocab),
                "hidden": self.g.target_hidden,
                "max_positions": self.g.max_model_len,
                "head_dim": t.head_dim,
                **self._ranks(),
            },
            inputs=(*self._rank(), _ints("tokens", rows), _ints("positions", rows)),
            outputs=(self._hidden(rows), TensorSpec("angles", "float32", (rows, t.head_dim))),
        )

    def _layer_features(self, index: int) -> dict[str, int | float | bool]:
        """What layer `index` has beyond Llama's; a window as long as any text can be is none."""
        t = self.g.target
        window = t.window(index) if t.window(index) < self.g.max_model_len else 0
        features = {"qkv_bias": t.qkv_bias, "o_bias": t.o_bias, "qk_norm": t.qk_norm, "window": window}
        return {name: value for name, value in features.items() if value}

    def layer(self, requests: int, per_request: int, index: int) -> UnitSpec:
        """The unit of decoder layer `index`; layers that differ in nothing but weights share it."""
        t, rows = self.g.target, requests * per_request
        hidden, features = self._hidden(rows), self._layer_features(index)
        suffix = f".w{features['window']}" if "window" in features else ""
        return UnitSpec(
            name=f"target_layer.r{requests}x{per_request}{suffix}",
            kind="target_layer",
            dtype=self.g.dtype,
            arguments={
                "hidden": self.g.target_hidden,
                "intermediate": self.g.per_rank(t.intermediate_size),
                "heads": self.g.per_rank(t.num_heads),
                "kv_heads": self.g.per_rank(t.num_kv_heads),
                "head_dim": t.head_dim,
                "eps": t.rms_norm_eps,
                **features,
                **self._real("hidden"),
                **self._ranks(),
            },
            inputs=(
                hidden,
                TensorSpec("angles", "float32", (rows, t.head_dim)),
                *self._paging(requests, rows),
                *self._pools(self.g.per_rank(t.num_kv_heads), t.head_dim),
            ),
            outputs=(hidden,),
        )

    def _head_arguments(self) -> dict[str, int | float | bool]:
        return {
            "vocab": self.g.per_rank(self.g.target_vocab),
            "hidden": self.g.target_hidden,
            "eps": self.g.target.rms_norm_eps,
            "with_logits": self.g.sampling == "logits",
            # Only where it is so: other units keep their description, and with it their cache keys
            **({"sampled": True} if self.g.sampling == "random" else {}),
            **self._real("vocab", "hidden"),
            **self._ranks(),
        }

    def _features(self, rows: int) -> TensorSpec:
        return TensorSpec("features", self.g.dtype, (rows, self.g.draft.num_aux * self.g.target.hidden_size))

    def asked(self, requests: int, rows: int) -> tuple[TensorSpec, ...]:
        """What a head that draws tokens reads beside logits, in the order of `aot.models.sampling.Asked`."""
        if self.g.sampling != "random":
            return ()
        return (
            TensorSpec("temperature", "float32", (requests,)),
            _ints("top_k", requests),
            TensorSpec("top_p", "float32", (requests,)),
            TensorSpec("min_p", "float32", (requests,)),
            TensorSpec(UNIFORMS, "float32", (rows,)),
        )

    def _logits(self, rows: int) -> tuple[TensorSpec, ...]:
        if self.g.sampling != "logits":
            return ()
        return (TensorSpec("logits", "float32", (rows, self.g.target.vocab_size)),)

    def prefill_head(self, rows: int) -> UnitSpec:
        return UnitSpec(
            name=f"target_prefill_head.t{rows}",
            kind="target_prefill_head",
            dtype=self.g.dtype,
            arguments=self._head_arguments(),
            inputs=(
                *self._rank(),
                self._hidden(rows),
                _ints("last_index", 1),
                *self.asked(1, 1),
                *self._auxiliary(rows),
            ),
            outputs=(_ints("next_token", 1), self._features(rows), *self._logits(1)),
        )

    def verify_head(self, requests: int, per_request: int) -> UnitSpec:
        rows = requests * per_request
        return UnitSpec(
            name=f"target_verify_head.r{requests}x{per_request}",
            kind="target_verify_head",
            dtype=self.g.dtype,
            arguments={**self._head_arguments(), "requests": requests},
            inputs=(
                *self._rank(),
                self._hidden(rows),
                _ints("tokens", rows),
                _ints("num_draft_tokens", requests),
                *self.asked(requests, rows),
                *self._auxiliary(rows),
            ),
            outputs=(_ints("accepted", requests, per_request), self._features(rows), *self._logits(rows)),
        )

    def final_features(self, rows: int) -> UnitSpec:
        eps = self.g.target.rms_norm_eps
        return UnitSpec(
            name=f"target_final_features.t{rows}",
            kind="target_final_features",
            dtype=self.g.dtype,
            arguments={"hidden": self.g.target_hidden, "eps": eps, **self._real("hidden")},
            inputs=(self._hidden(rows),),
            outputs=(self._hidden(rows, "final"),),
        )

    def _draft_arguments(self) -> dict[str, int | float | bool]:
        d = self.g.draft
        plain: dict[str, int | float | bool] = {
            "vocab": self.g.per_rank(d.vocab_size),
            "draft_vocab": self.g.per_rank(self.g.draft_vocab),
            "hidden": self.g.draft_hidden,
            "intermediate": self.g.per_rank(d.intermediate_size),
            "heads": self.g.per_rank(d.num_heads),
            "kv_heads": self.g.per_rank(d.num_kv_heads),
            "head_dim": d.head_dim,
            "eps": d.rms_norm_eps,
            "max_positions": self.g.max_model_len,
            "norm_before_residual": d.norm_before_residual,
        }
        # A window as long as any text can be is none
        windows = [window if window < self.g.max_model_len else 0 for window in d.windows]
        # Only where a draft differs: the plain draft's units keep their description, and with it their cache keys
        variants: dict[str, tuple[int | float | bool, int | float | bool]] = {
            "layers": (d.num_layers, 1),
            "qkv_bias": (d.qkv_bias, False),
            "o_bias": (d.o_bias, False),
            "mlp_bias": (d.mlp_bias, False),
            "qk_norm": (d.qk_norm, False),
            "window": (max(windows, default=0), 0),
            "windowed_layers": (sum(1 << layer for layer, window in enumerate(windows) if window), 0),
            "norm_output": (d.norm_output, False),
            "logit_scale": (d.logit_scale, 1.0),
            "mapped": (not d.full_vocabulary, True),
            "real_hidden": (d.hidden_size if self.g.draft_padding.hidden else 0, 0),
            "real_vocab": (d.draft_vocab_size if self.g.draft_padding.vocab else 0, 0),
            "ranks": (self.g.ranks, 1),
        }
        return plain | {name: value for name, (value, neutral) in variants.items() if value != neutral}

    def _draft_pools(self) -> tuple[TensorSpec, ...]:
        key, value = self._pools(self.g.per_rank(self.g.draft.num_kv_heads), self.g.draft.head_dim)
        further = [
            TensorSpec(f"{pool.name}_{layer}", pool.dtype, pool.shape)
            for layer in range(1, self.g.draft.num_layers)
            for pool in (key, value)
        ]
        return key, value, *further

    def _draft_outputs(self, requests: int) -> tuple[TensorSpec, TensorSpec]:
        state = TensorSpec("state", self.g.dtype, (requests, self.g.draft_hidden))
        return _ints("draft_token", requests), state

    def draft_initial(self, requests: int, per_request: int) -> UnitSpec:
        d, rows = self.g.draft, requests * per_request
        features = self._features(rows)
        arguments = {
            **self._draft_arguments(),
            "feature_size": d.num_aux * d.target_hidden_size if d.features == "auxiliary" else 0,
        }
        arguments |= {"normed_jointly": True} if d.feature_norm == "joined" else {}
        arguments |= {"normed_states": d.num_aux} if d.feature_norm == "each" else {}
        arguments |= {"fc_bias": True} if d.fc_bias else {}
        return UnitSpec(
            name=f"draft_initial.r{requests}x{per_request}",
            kind="draft_initial",
            dtype=self.g.dtype,
            arguments=arguments,
            inputs=(
                *self._rank(),
                _ints("tokens", rows),
                *self._paging(requests, rows),
                features,
                _ints("last_index", requests),
                *self._draft_pools(),
            ),
            outputs=self._draft_outputs(requests),
        )

    def draft_recurrent(self, requests: int) -> UnitSpec:
        _, state = self._draft_outputs(requests)
        return UnitSpec(
            name=f"draft_recurrent.r{requests}",
            kind="draft_recurrent",
            dtype=self.g.dtype,
            arguments=self._draft_arguments(),
            inputs=(
                *self._rank(),
                _ints("tokens", requests),
                state,
                *self._paging(requests, requests),
                *self._draft_pools(),
            ),
            outputs=self._draft_outputs(requests),
        )

    def _fused_arguments(self, requests: int, per_request: int) -> dict[str, int | float | bool]:
        arguments = self.draft_initial(requests, per_request).arguments
        return {**arguments, "drafts": self.g.num_speculative_tokens}

    def draft_fused_prefill(self, rows: int) -> UnitSpec:
        return UnitSpec(
            name=f"draft_fused_prefill.t{rows}",
            kind="draft_fused_prefill",
            dtype=self.g.dtype,
            arguments=self._fused_arguments(1, rows),
            inputs=(
                *self._rank(),
                _ints("tokens", rows),
                _ints("next_token", 1),
                _ints("last_index", 1),
                *self._paging(1, rows),
                self._features(rows),
                _ints("length_limits", 1),
                *self._draft_pools(),
            ),
            outputs=(_ints("step_tokens", 1, 1 + self.g.num_speculative_tokens),),
        )

    def draft_fused(self, requests: int) -> UnitSpec:
        k, per_request = self.g.num_speculative_tokens, self.g.verify_rows
        return UnitSpec(
            name=f"draft_fused.r{requests}x{per_request}",
            kind="draft_fused",
            dtype=self.g.dtype,
            arguments=self._fused_arguments(requests, per_request),
            inputs=(
                *self._rank(),
                _ints("accepted", requests, per_request),
                *self._paging(requests, requests * per_request),
                self._features(requests * per_request),
                _ints("length_limits", requests),
                *self._draft_pools(),
            ),
            outputs=(_ints("step_tokens", requests, 1 + 2 * k),),
        )
