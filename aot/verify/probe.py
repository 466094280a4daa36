"""Which meaning of a draft's auxiliary layer ids fits: both are tried on a few prompts, in eager PyTorch.

Read one layer off, a draft is next to never accepted, and nothing else shows it. So the target answers a few prompts
with the draft beside it, once for each meaning, through the same loop and modules as a bundle's, only not compiled; the
accepted drafts tell. The text is the target's either way.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from aot.build.models import draft_options, load_weights, read_models
from aot.build.plan import Models
from aot.build.scopes import scopes
from aot.checkpoint.draft import DraftConfig
from aot.checkpoint.draft_options import Semantic
from aot.config import BuildConfig
from aot.graphs.geometry import Geometry, geometry
from aot.graphs.table import graph_table
from aot.verify.eager import EagerBackend, eager_bundle
from aot.verify.tokenizer import place_tokenizer
from runtime.bundle.errors import ConfigError, UsageError
from runtime.bundle.manifest import Buckets
from runtime.engine import Engine
from runtime.graphs import GraphSet
from runtime.proposer import EagleProposer
from runtime.request import Request, SpecDecodeStats
from runtime.text import Tokenizer, has_tokenizer

PROMPTS = (
    "Explain in two sentences why the sky is blue.",
    "Write a short letter to a neighbour who waters your plants.",
    "List five things to take along on a walk in the mountains.",
    "What is 17 times 6? Show how you get there.",
    "Write a function that reverses a string, in Python.",
)
NEW_TOKENS, MOST_PROMPT_TOKENS, CONTEXT = 48, 128, 256
# A difference of acceptance length that a few hundred drafted tokens can tell from chance
LEAST_DIFFERENCE = 0.15


@dataclass(frozen=True)
class Meaning:
    """What was seen under one meaning of the ids.

    Attributes:
        positions: the residual-stream positions that it stands for.
        stats: accepted drafts, over all prompts.
    """

    semantic: Semantic
    positions: tuple[int, ...]
    stats: SpecDecodeStats


def fitting(meanings: Sequence[Meaning]) -> Meaning | None:
    """The meaning whose drafts are accepted clearly more often than any other's, if there is one."""
    best, *others = sorted(meanings, key=lambda meaning: -meaning.stats.mean_acceptance_length)
    second = max((other.stats.mean_acceptance_length for other in others), default=1.0)
    return best if best.stats.mean_acceptance_length - second >= LEAST_DIFFERENCE else None


def probe_aux(config: BuildConfig, seen: Callable[[Meaning], None]) -> list[Meaning]:
    """Try the meanings that the draft's ids can have for its target; `seen` hears of each when it is done.

    Raises:
        ConfigError, ErrorGroup: a model is missing or not supported, or the draft reads no auxiliary states.
    """
    drafts = list(candidates(config))
    models = drafts[0][1]
    prompts = list(_prompts(models))
    # Weights do not hang on which states are tapped
    held = dict(scopes(_small(geometry(config, models.target, models.draft)), *load_weights(config, models)))
    meanings = []
    for semantic, candidate in drafts:
        sizes = _small(geometry(config, candidate.target, candidate.draft))
        table = graph_table(sizes)
        backend = EagerBackend({unit.name: unit for unit in table.units}, held)
        graphs = GraphSet(eager_bundle(sizes, table), [graph.kind for graph in table.graphs], None, backend)
        engine = Engine(graphs, EagleProposer(graphs))
        for index, prompt in enumerate(prompts):
            engine.generate([Request(str(index), prompt, max_tokens=NEW_TOKENS)])
        meanings.append(Meaning(semantic, candidate.draft.aux_layers, engine.totals))
        seen(meanings[-1])
    return meanings


def candidates(config: BuildConfig) -> Iterator[tuple[Semantic, Models]]:
    """The models under each meaning of the draft's ids that its target has layers for.

    Positions that are stated plainly, or the default's, are tried as if they had been ids: as they are, and one layer
    later.
    """
    options = draft_options(config)
    read: dict[Semantic, Models] = {}
    problem: ConfigError | None = None
    meanings: tuple[Semantic, ...] = ("input_of", "output_of")
    for semantic in meanings:
        try:
            read[semantic] = read_models(config, dataclasses.replace(options, aux_semantic=semantic))
        except ConfigError as error:
            problem = error
    if not read and problem is not None:
        raise problem
    first = next(iter(read.values()))
    if first.draft.features == "final":
        raise UsageError(
            "The draft reads its target's final state and no auxiliary layers",
            expected="a draft with auxiliary layers",
            found="use_aux_hidden_state: false",
            repair="build it; there is nothing to probe",
        )
    if len({models.draft.aux_layers for models in read.values()}) == 1:
        read = {"input_of": first}
        later = tuple(layer + 1 for layer in first.draft.aux_layers)
        if later[-1] <= first.target.num_layers:
            shifted: DraftConfig = dataclasses.replace(first.draft, aux_layers=later)
            read["output_of"] = dataclasses.replace(first, draft=shifted)
    yield from read.items()


def _small(sizes: Geometry) -> Geometry:
    """One request of a few hundred tokens, whatever the bundle is to hold."""
    block = sizes.block_size
    length = min(sizes.max_model_len, -(-CONTEXT // block) * block)
    rows = max(min(64, length), sizes.verify_rows)
    return dataclasses.replace(
        sizes,
        max_model_len=length,
        max_num_seqs=1,
        num_blocks=1 + length // block,
        buckets=Buckets((rows,), (1,), (length,)),
        sampling="greedy",
        exact_greedy=True,
        draft_fused=False,
        schedule=None,
    )


def _prompts(models: Models) -> Iterator[tuple[int, ...]]:
    """The prompts' ids, in the target's chat template where it has one; random ids for a toy without a tokenizer."""
    with TemporaryDirectory() as folder:
        if models.target_source is not None:
            place_tokenizer(models.target_source, Path(folder), models.target.vocab_size)
        if has_tokenizer(Path(folder)):
            tokenizer = Tokenizer.load(Path(folder))
            for prompt in PROMPTS:
                if tokenizer.has_chat_template:
                    text = tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
                    yield tuple(tokenizer.encode(text, add_special_tokens=False))[-MOST_PROMPT_TOKENS:]
                else:
                    yield tuple(tokenizer.encode(prompt))[:MOST_PROMPT_TOKENS]
            return
    numbers = random.Random(0)
    for _ in PROMPTS:
        yield tuple(numbers.randrange(models.target.vocab_size) for _ in range(8))
