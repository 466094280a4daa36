"""A toy pair in float32 and answers of its target, made by the training code's own loop."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from aot.checkpoint.draft import DraftConfig
from aot.checkpoint.random_weights import random_target_weights
from aot.checkpoint.target import TargetConfig, target_config_from_json
from training.checkpoint import draft_json, make_draft
from training.corpus import TrainingSequence
from training.draft import TrainableDraft
from training.target import Answer, BatchTarget

AUX = (1, 2, 3)
PROMPTS = ([3, 9, 27, 17], [5, 6], [40, 41, 42, 43, 44, 45, 46], [1], [11, 12, 13])
MAX_LENGTH = 32


@dataclass(frozen=True)
class Toy:
    """The pair: target and draft in float32, the draft's ids are every third of the target's 48."""

    config: TargetConfig
    weights: dict[str, Tensor]
    target: BatchTarget
    draft_json: dict[str, object]
    draft_config: DraftConfig
    draft: TrainableDraft
    draft_ids: Tensor

    @property
    def draft_head(self) -> Tensor:
        """The target's head rows of the draft vocabulary."""
        return self.weights["lm_head.weight"][self.draft_ids]

    def answers(self, temperature: float = 0.0, tokens: int = 9, eos: tuple[int, ...] = ()) -> list[Answer]:
        generator = torch.Generator().manual_seed(0)
        return self.target.answer(PROMPTS, [temperature] * len(PROMPTS), tokens, eos, generator)

    def sequences(self, temperature: float = 0.0, tokens: int = 9) -> list[TrainingSequence]:
        return [as_sequence(answer, temperature) for answer in self.answers(temperature, tokens)]


def as_sequence(answer: Answer, temperature: float = 0.0) -> TrainingSequence:
    return TrainingSequence(
        answer.tokens, answer.prompt_length, answer.features, answer.finals, answer.choices, "toy", temperature
    )


def make_toy() -> Toy:
    config = target_config_from_json(
        {
            "model_type": "llama",
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 48,
            "max_position_embeddings": 64,
        }
    )
    config = replace(config, eos_token_ids=())
    weights = random_target_weights(config, 1, torch.float32)
    raw = draft_json(config, 16, AUX, "float32")
    torch.manual_seed(3)
    draft, draft_config = make_draft(raw, config, weights["model.embed_tokens.weight"])
    draft.set_feature_scale(torch.rand(96) + 0.5)
    target = BatchTarget(config, weights, AUX, MAX_LENGTH)
    return Toy(config, weights, target, raw, draft_config, draft, torch.arange(0, 48, 3))
