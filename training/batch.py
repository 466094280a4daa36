"""Sequences side by side, padded: what one step of training reads.

The draft's row p holds (feature p, token p+1). A chain starts at every row from the prompt's last one on: there the
target has just chosen the answer's first token, and drafting begins. Chain r of a sequence with a p-token prompt
starts at row p-1+r and its j-th prediction (from 0) is for the answer's token r+1+j.

Shapes: B sequences, T rows, M chains a sequence, J unrolled steps, A*H features, H hidden, m an answer's tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.corpus import TrainingSequence


@dataclass(frozen=True)
class Batch:
    """Padded sequences.

    Attributes:
        next_tokens: [B, T] int64, row p's token: that of position p+1.
        features: [B, T, A*H].
        starts: [B] int64, the row of each sequence's first chain (prompt length less one).
        finals: [B, M+J-1, H], the target's normed last states from the answer's first token on; entry r+j judges
            prediction j of chain r.
        choices: [B, M+J-1] int64, the target's greedy token at the same places; -1 where there is none.
        chains: M, the longest answer's tokens less one.
    """

    next_tokens: Tensor
    features: Tensor
    starts: Tensor
    finals: Tensor
    choices: Tensor
    chains: int

    @property
    def judged(self) -> int:
        """Places of the answers that step 0 is judged at."""
        return int((self.choices[:, : self.chains] >= 0).sum())

    def chain_tokens(self, step: int) -> Tensor:
        """The token that each chain's row holds in a step, [B, M]: the corpus's, as if every guess had been right."""
        rows = self.starts[:, None] + step + torch.arange(self.chains)
        return self.next_tokens.gather(1, rows.clamp(max=self.next_tokens.shape[1] - 1))

    def chain_positions(self) -> Tensor:
        """The row, and so the position, at which each chain starts, [B, M]."""
        return self.starts[:, None] + torch.arange(self.chains)


def collate(sequences: Sequence[TrainingSequence], steps: int) -> Batch:
    """Pad sequences to the longest. `steps` is J; every sequence has an answer of at least two tokens."""
    chains = max(sequence.answer_length - 1 for sequence in sequences)
    rows = max(len(sequence.tokens) - 1 for sequence in sequences)
    size, first = len(sequences), sequences[0]
    next_tokens = torch.zeros(size, rows, dtype=torch.int64)
    features = first.features.new_zeros(size, rows, first.features.shape[1])
    finals = first.finals.new_zeros(size, chains + steps - 1, first.finals.shape[1])
    choices = torch.full((size, chains + steps - 1), -1, dtype=torch.int64)
    for index, sequence in enumerate(sequences):
        count = len(sequence.tokens) - 1
        next_tokens[index, :count] = sequence.tokens[1:]
        features[index, :count] = sequence.features
        finals[index, : len(sequence.finals)] = sequence.finals
        choices[index, : len(sequence.finals)] = sequence.choices[1:]
    starts = torch.tensor([sequence.prompt_length - 1 for sequence in sequences])
    return Batch(next_tokens, features, starts, finals, choices, chains)
