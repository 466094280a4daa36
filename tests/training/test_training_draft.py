"""The unrolled draft is the served draft: same states, same guesses, same rows seen, for every chain and step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from aot.build.scopes import decoder_layer
from aot.models.eagle3 import DraftInitial, DraftRecurrent
from aot.models.layers import rotary_table
from runtime.bundle.errors import ConfigError
from tests.training.toy import Toy, make_toy
from training.batch import Batch, collate
from training.corpus import TrainingSequence
from training.draft import TrainableDraft, visible

STEPS = 4
BLOCK = 4


class Served:
    """The modules that are compiled and served, over a paged pool, fed one request at a time."""

    def __init__(self, toy: Toy) -> None:
        c = toy.draft_config
        weights = toy.draft.export()
        facts = {
            "vocab": c.vocab_size,
            "draft_vocab": c.draft_vocab_size,
            "hidden": c.hidden_size,
            "intermediate": c.intermediate_size,
            "heads": c.num_heads,
            "kv_heads": c.num_kv_heads,
            "head_dim": c.head_dim,
            "eps": c.rms_norm_eps,
            "max_positions": c.max_position_embeddings,
            "norm_before_residual": c.norm_before_residual,
        }
        self.initial = DraftInitial(feature_size=3 * c.target_hidden_size, dtype=torch.float32, **facts)
        self.recurrent = DraftRecurrent(dtype=torch.float32, **facts)
        scope: Mapping[str, Tensor] = {
            **decoder_layer(weights, "midlayer."),
            "embed_tokens.weight": toy.weights["model.embed_tokens.weight"],
            "rotary.weight": rotary_table(c.max_position_embeddings, c.head_dim, c.rope_theta),
            "hidden_norm.weight": weights["midlayer.hidden_norm.weight"],
            "norm.weight": weights["norm.weight"],
            "lm_head.weight": weights["lm_head.weight"],
            "target_ids.weight": toy.draft_ids.to(torch.int32),
        }
        self.initial.load_state_dict({**scope, "fc.weight": weights["fc.weight"]})
        self.recurrent.load_state_dict(dict(scope))
        self.shape = (16, BLOCK, c.num_kv_heads, c.head_dim)

    @torch.no_grad()
    def chain(self, tokens: Tensor, features: Tensor, start: int, steps: int) -> tuple[list[int], list[Tensor]]:
        """Guesses and states of a chain that starts at row `start`: row p holds tokens[p], its position is p."""
        keys, values = torch.zeros(self.shape), torch.zeros(self.shape)
        table = torch.arange(1, 16, dtype=torch.int32)[None]

        def rows(first: int, count: int) -> tuple[Tensor, Tensor]:
            positions = torch.arange(first, first + count, dtype=torch.int32)
            return positions, positions + BLOCK  # block 0 is the null block

        positions, slots = rows(0, start + 1)
        ids = tokens[: start + 1].to(torch.int32)
        last = torch.tensor([start], dtype=torch.int32)
        token, state = self.initial(ids, positions, slots, table, features[: start + 1], last, keys, values)
        guesses, states = [int(token)], [state[0]]
        for step in range(1, steps):
            positions, slots = rows(start + step, 1)
            ids = tokens[start + step : start + step + 1].to(torch.int32)
            token, state = self.recurrent(ids, state, positions, slots, table, keys, values)
            guesses.append(int(token))
            states.append(state[0])
        return guesses, states


def unrolled(toy: Toy, batch: Batch) -> Tensor:
    """[B, M, STEPS, H]."""
    with torch.no_grad():
        return torch.stack(list(toy.draft.unroll(batch, STEPS)), dim=2)


def judged(sequence: TrainingSequence) -> list[tuple[int, int]]:
    """The chains of a sequence, each with how many of its steps hold tokens that exist."""
    chains = sequence.answer_length - 1
    return [(chain, min(STEPS, chains - chain)) for chain in range(chains)]


def test_every_chain_and_step_is_the_served_drafts(toy: Toy) -> None:
    served, sequences = Served(toy), toy.sequences(temperature=1.0)
    batch = collate(sequences, STEPS)
    made = unrolled(toy, batch)
    for index, sequence in enumerate(sequences):
        for chain, steps in judged(sequence):
            start = sequence.prompt_length - 1 + chain
            guesses, states = served.chain(sequence.tokens[1:], sequence.features, start, steps)
            with torch.no_grad():
                normed = toy.draft.norm(torch.stack(states))
                torch.testing.assert_close(made[index, chain, :steps], normed, rtol=1e-4, atol=1e-5)
                own = toy.draft_ids[toy.draft.lm_head(made[index, chain, :steps]).argmax(-1)]
            assert own.tolist() == guesses


def test_a_chain_sees_the_rows_that_the_served_draft_sees(toy: Toy) -> None:
    """Row by row: change one feature, and look which chains of either notice."""
    served, sequence = Served(toy), toy.sequences(temperature=1.0)[0]
    tokens, rows = sequence.tokens[1:], len(sequence.features)
    before = unrolled(toy, collate([sequence], STEPS))
    mask = visible(torch.tensor([sequence.prompt_length - 1]), sequence.answer_length - 1, rows)[0]
    for row in range(rows):
        features = sequence.features.clone()
        features[row] += 1.0
        changed = TrainingSequence(**{**vars(sequence), "features": features})
        after = unrolled(toy, collate([changed], STEPS))
        for chain, steps in judged(sequence):
            start = sequence.prompt_length - 1 + chain
            _, old = served.chain(tokens, sequence.features, start, steps)
            _, new = served.chain(tokens, features, start, steps)
            for step in range(steps):
                noticed = not torch.equal(before[0, chain, step], after[0, chain, step])
                assert noticed == (not torch.equal(old[step], new[step])) == bool(mask[chain, row])


def test_padding_changes_nothing(toy: Toy) -> None:
    sequences = toy.sequences()
    together = unrolled(toy, collate(sequences, STEPS))
    for index, sequence in enumerate(sequences):
        alone = unrolled(toy, collate([sequence], STEPS))[0]
        for chain, steps in judged(sequence):
            torch.testing.assert_close(together[index, chain, :steps], alone[chain, :steps], rtol=1e-5, atol=1e-5)


def test_a_draft_of_another_kind_is_refused_by_name() -> None:
    """Trained or measured as the plain layer, it would be another model."""
    toy = make_toy()
    with pytest.raises(ConfigError) as caught:
        TrainableDraft(replace(toy.draft_config, num_layers=2), toy.weights["model.embed_tokens.weight"])
    assert caught.value.sentence() == "training knows no draft with num_layers 2: expected 1, found 2."
