"""How parameters move: Muon for the matrices between hidden states, AdamW for the rest.

Muon's steps are orthogonalised gradients; its rate is scaled to AdamW's size of step. On 210 thousand answer tokens of
SmolLM2, 120 steps, the draft's first guess was right on 0.36 of the last batches' places with Muon at 5e-3 and AdamW at
2e-3, on 0.33 with AdamW alone at 2e-3 and on 0.30 at 1e-3; acceptance length on held-out answers 1.44, 1.39 and 1.35.
The head is no matrix between hidden states, nor are the norms.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from training.plan import Plan

CLIP = 1.0


def learning_rate(step: int, plan: Plan) -> float:
    """Share of the full rate at a step, from 0 to 1: a linear rise, a plateau, a linear fall to 0."""
    rise = max(1, round(plan.steps * plan.warmup))
    fall = max(1, round(plan.steps * plan.cooldown))
    return min(1.0, (step + 1) / rise, (plan.steps - step) / fall)


class Optimizer:
    """Both optimizers behind one step; gradients are clipped to a norm of 1."""

    def __init__(self, model: nn.Module, rate: float, matrix_rate: float) -> None:
        self._parameters = list(model.parameters())
        matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and name != "lm_head.weight"]
        rest = [p for name, p in model.named_parameters() if p.ndim != 2 or name == "lm_head.weight"]
        self._parts: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.95), weight_decay=0.0), rate)
        ]
        if matrix_rate:
            muon = torch.optim.Muon(matrices, lr=matrix_rate, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
            self._parts.append((muon, matrix_rate))
        else:
            self._parts.append((torch.optim.AdamW(matrices, lr=rate, betas=(0.9, 0.95), weight_decay=0.0), rate))

    def set_rate(self, share: float) -> None:
        for part, rate in self._parts:
            for group in part.param_groups:
                group["lr"] = rate * share

    def step(self) -> float:
        """Apply and clear the gradients; returns their norm before clipping."""
        norm = float(nn.utils.clip_grad_norm_(self._parameters, CLIP))
        for part, _ in self._parts:
            part.step()
            part.zero_grad(set_to_none=True)
        return norm

    def state_dict(self) -> dict[str, Any]:
        return {str(index): part.state_dict() for index, (part, _) in enumerate(self._parts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for index, (part, _) in enumerate(self._parts):
            part.load_state_dict(state[str(index)])
