"""The configuration's keys. Names, nesting and meaning are vLLM's, so that what runs with vLLM can be pasted.

Our own keys (`backend`, `buckets`, `draft_fused`, `exact_greedy`, `kv_blocks`, `model_config`, `draft_config`,
`random_weights`) stand beside them. Every model here is frozen and refuses unknown keys; integers are
integers (no "3", no true for 1). Rules between keys are in `limits.py`, because all of them are reported
together with the type errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator
from pydantic.config import JsonDict

from aot.config.defaults import (
    BLOCK_SIZE,
    MAX_MODEL_LEN,
    MAX_NUM_SEQS,
    MOST_NUM_SEQS,
    MOST_SPECULATIVE_TOKENS,
    MOST_TOKENS,
    with_defaults,
)
from runtime.bundle.manifest import Sampling
from runtime.bundle.schedule import KSchedule


def _bool_from_text(value: object) -> object:
    """vLLM Neuron's own examples write `"true"` in quotes."""
    return {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value


def _derived(schema: JsonDict) -> None:
    """The published schema shows no default for a value that follows from others."""
    schema.pop("default", None)


TextBool = Annotated[bool, BeforeValidator(_bool_from_text, json_schema_input_type=bool | Literal["true", "false"])]
Positive = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
# The tuple itself comes as a YAML list, which strict mode would refuse; its members stay strict.
BucketList = Annotated[tuple[Positive, ...], Field(strict=False, min_length=1, json_schema_extra=_derived)]
LayerList = Annotated[tuple[Annotated[int, Field(ge=0, le=MOST_TOKENS)], ...], Field(strict=False, min_length=1)]
FilePath = Annotated[Path, Field(strict=False)]
# Three numbers each; what they must be is `KSchedule`'s to say, in limits.py
ScheduleRange = Annotated[
    tuple[Annotated[int, Field(ge=0, le=MOST_TOKENS)], ...],
    Field(strict=False, json_schema_extra={"minItems": 3, "maxItems": 3}),
]
Schedule = Annotated[tuple[ScheduleRange, ...], Field(strict=False, min_length=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DraftOverrides(_Section):
    """What goes before the draft's config.json, where it is silent, ambiguous or wrong."""

    norm_before_residual: bool | None = Field(
        default=None, description="The residual of the draft's first layer is the normed hidden state."
    )
    norm_output: bool | None = Field(
        default=None, description="Each draft step reads the state after the final norm of the step before."
    )
    rope_theta: Annotated[float, Field(gt=1, le=1e15)] | None = Field(
        default=None, description="Base of the draft's rotary embedding."
    )
    attention_window: Annotated[int, Field(ge=0, le=MOST_TOKENS)] | None = Field(
        default=None, description="Tokens that a row of the draft sees, in every layer; 0 for all."
    )
    embed_tokens: Literal["auto", "draft", "target"] = Field(
        default="auto", description="Whose embedding table the draft reads; auto: its own where it has one."
    )


class SpeculativeConfig(_Section):
    """vLLM's speculative_config, and beside it how a draft is read that does not say enough."""

    method: Literal["eagle3"] = Field(default="eagle3", description="The speculation method.")
    model: str | None = Field(
        default=None,
        min_length=1,
        description="The EAGLE3 draft, named as the target is. May be left out where draft_config is given.",
        examples=["yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"],
    )
    num_speculative_tokens: int = Field(
        ge=1,
        le=MOST_SPECULATIVE_TOKENS,
        description="K, the number of draft tokens that each step proposes.",
        examples=[3],
    )
    num_speculative_tokens_per_batch_size: Schedule | None = Field(
        default=None,
        description="[first, last, K] for ranges of the number of requests in a pass: how many draft tokens such a "
        "step proposes, at most num_speculative_tokens. Sizes between two ranges have the K of the one before, K = 0 "
        "drafts nothing. For each K graphs of fewer rows are compiled.",
        examples=[[[1, 2, 3], [3, 4, 1]]],
    )
    aux_layers: LayerList | None = Field(
        default=None,
        description="Ids of the target's layers whose states the draft reads, instead of those in its config.json.",
        examples=[[2, 16, 29]],
    )
    require_aux_layers: bool = Field(
        default=False, description="Refuse a draft that names no layers, instead of taking the default ones."
    )
    aux_semantic: Literal["auto", "input_of", "output_of"] = Field(
        default="auto",
        description="What layer ids mean: the streams that enter those layers or those that leave them. "
        "auto: by the list's first id, 2 for inputs, 1 for outputs; refused where that does not tell.",
    )
    draft_overrides: DraftOverrides = Field(
        default=DraftOverrides(), description="Keys that go before the draft's config.json."
    )


class OnDeviceSamplingConfig(_Section):
    """Sampling inside the compiled graphs: greedy alone, or random too, with rejection: coupled."""

    all_greedy: TextBool = Field(
        default=False,
        description="Every request is greedy. False: graphs draw tokens too, by temperature, top_k, top_p and min_p; "
        "requests that ask for penalties, logprobs or other things that need logits are refused. "
        'The strings "true" and "false" are read as well.',
    )


class NeuronConfig(_Section):
    """vLLM Neuron's neuron_config, as far as speculation uses it."""

    on_device_sampling_config: OnDeviceSamplingConfig | None = Field(
        default=None,
        description="Sample and accept inside the graphs. Without it the graphs also return logits, and the host "
        "samples.",
    )


class AdditionalConfig(_Section):
    """vLLM's additional_config."""

    neuron_config: NeuronConfig = Field(default=NeuronConfig(), description="vLLM Neuron's own keys.")


class AotiBackend(_Section):
    """torch.export and AOTInductor."""

    name: Literal["aoti"] = Field(default="aoti", description="AOTInductor.")
    device: Literal["cpu", "cuda"] = Field(default="cpu", description="Where the bundle will run.")
    gemm: Literal["auto", "packed", "library"] = Field(
        default="auto",
        description="Matrix products: packed constants, the math library, or whichever suits each product.",
    )
    cpu_level: Literal["auto", "avx2", "avx512", "avx512_bf16", "amx"] = Field(
        default="auto",
        description="Instructions that compiled code may use: all that this CPU has, or no more than a level's, for "
        "CPUs that have less.",
    )


class NeuronBackend(_Section):
    """torch-xla lowering and neuronx-cc."""

    name: Literal["neuron"] = Field(default="neuron", description="AWS Neuron.")
    target: Literal["trn2", "trn3"] = Field(default="trn2", description="The instance family to compile for.")
    lnc: Literal[1, 2] = Field(default=2, description="Physical cores per logical NeuronCore.")
    python: FilePath | None = Field(
        default=None,
        description="A Python that has torch-xla, where this one has not.",
        examples=["neuron-venv/bin/python"],
    )
    compiler_args: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(),
        description="Further arguments for neuronx-cc, after those that the build sets.",
        examples=[["--verbose=35"]],
    )


class Buckets(_Section):
    """The shapes that are compiled. Each list ascends."""

    prefill_tokens: BucketList = Field(default=(), description="Rows of a prefill pass.", examples=[[128]])
    num_seqs: BucketList = Field(default=(), description="Requests of a verify pass.", examples=[[1, 4]])
    context_tokens: BucketList = Field(
        default=(), description="Tokens that a request's block table reaches.", examples=[[512, 2048]]
    )


class RandomWeights(_Section):
    """Seeded random weights for both models, for tests."""

    seed: int = Field(default=0, ge=0, le=2**63 - 1, description="Seed of both models' weights.")


class BuildConfig(_Section):
    """Everything that `eagle3-build` is told. See `load_config`, which reads it from a YAML file.

    Attributes that need a word beside their description: `target_config_path` and `draft_config_path` are
    the YAML's `model_config` and `draft_config` (pydantic keeps the first name for itself); `load_config`
    makes them absolute.
    """

    name: str = Field(
        default="bundle",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="The bundle's name. Default: the file's name without its suffix.",
        json_schema_extra=_derived,
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        description="The target: hub id, folder, .gguf file or package:NAME/FILE. May be left out where "
        "model_config is given.",
        examples=["meta-llama/Llama-3.1-8B-Instruct"],
    )
    target_config_path: FilePath | None = Field(
        default=None,
        alias="model_config",
        description="A config.json to read the target's architecture from.",
        examples=["target.json"],
    )
    draft_config_path: FilePath | None = Field(
        default=None,
        alias="draft_config",
        description="A config.json to read the draft's architecture from.",
        examples=["draft.json"],
    )
    random_weights: RandomWeights | None = Field(
        default=None,
        description="Give both models seeded random weights. Needs model_config and draft_config.",
    )
    tensor_parallel_size: Positive = Field(default=1, description="Ranks that share the model (neuron backend).")
    max_model_len: Positive = Field(default=MAX_MODEL_LEN, description="Tokens of prompt and answer together, at most.")
    max_num_seqs: int = Field(
        default=MAX_NUM_SEQS,
        ge=1,
        le=MOST_NUM_SEQS,
        description="Requests that run at the same time, at most.",
    )
    dtype: Literal["bfloat16", "float16", "float32"] = Field(
        default="bfloat16", description="Type of weights and KV cache."
    )
    block_size: Positive = Field(default=BLOCK_SIZE, description="Tokens in one block of the KV cache.")
    speculative_config: SpeculativeConfig = Field(
        description="The draft and how far it looks ahead.",
        examples=[{"method": "eagle3", "model": "DRAFT", "num_speculative_tokens": 3}],
    )
    additional_config: AdditionalConfig = Field(
        default=AdditionalConfig(), description="vLLM's place for a platform's own keys."
    )
    backend: Annotated[AotiBackend | NeuronBackend, Field(discriminator="name")] = Field(
        default=AotiBackend(), description="What compiles the graphs, and what for."
    )
    buckets: Buckets = Field(
        default=Buckets(),
        description="The shapes to compile. Lists left out follow from max_model_len and max_num_seqs.",
        json_schema_extra=_derived,
    )
    exact_greedy: bool = Field(
        default=True, description="Greedy speculation gives plain greedy decoding's text, bit for bit."
    )
    draft_fused: bool = Field(
        default=False,
        description="One graph for all of the draft's passes of a step, and one read-back; for devices that the host "
        "waits for.",
    )
    kv_blocks: Positive | None = Field(
        default=None,
        description="Blocks in the KV pool. Default: all requests at full length, and the null block.",
    )

    _base: Path = PrivateAttr(default=Path("."))

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, raw: object) -> object:
        return with_defaults(raw) if isinstance(raw, Mapping) else raw

    @property
    def base(self) -> Path:
        """The YAML's folder: relative model references are tried in the current directory, then here."""
        return self._base

    @property
    def num_speculative_tokens(self) -> int:
        """K."""
        return self.speculative_config.num_speculative_tokens

    @property
    def schedule(self) -> KSchedule | None:
        """The number of drafts for each batch size; None: K for all.

        Raises:
            UsageError: the ranges are no schedule; `load_config` refuses them.
        """
        ranges = self.speculative_config.num_speculative_tokens_per_batch_size
        return None if ranges is None else KSchedule.of(ranges, self.num_speculative_tokens)

    @property
    def all_greedy(self) -> bool:
        """Whether sampling happens inside the graphs and every request is greedy."""
        return self.sampling == "greedy"

    @property
    def sampling(self) -> Sampling:
        """What the target's graphs do about sampling, see `runtime.bundle.manifest.Manifest.sampling`."""
        on_device = self.additional_config.neuron_config.on_device_sampling_config
        if on_device is None:
            return "logits"
        return "greedy" if on_device.all_greedy else "random"

    @property
    def blocks_per_seq(self) -> int:
        """Blocks that one request of max_model_len tokens holds."""
        return -(-self.max_model_len // self.block_size)

    @property
    def num_kv_blocks(self) -> int:
        """Blocks in the KV pool, null block included."""
        return self.kv_blocks or 1 + self.max_num_seqs * self.blocks_per_seq
