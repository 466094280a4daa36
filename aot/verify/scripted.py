"""Force every accept and reject pattern through the compiled loop and compare the text with plain decoding.

The script knows what plain decoding wrote. For a pattern (a_1, a_2, ...) the i-th proposal is a_i right tokens followed
by wrong ones, so the i-th verify pass accepts exactly a_i drafts. No luck and no trained draft is needed. Graphs that
draw tokens run seeded requests as well, whose text must be that of the same seed without drafts.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence as Seq
from dataclasses import replace

from runtime.backends.device import DeviceTensor
from runtime.bundle.errors import CompileError
from runtime.bundle.manifest import Manifest
from runtime.bundle.open import Bundle
from runtime.engine import Engine
from runtime.proposer import ScriptedProposer
from runtime.request import Request
from runtime.sampling.params import GREEDY, SamplingParams
from runtime.schedule import KSchedule
from runtime.sequence import Sequence

PROMPT_TOKENS, NEW_TOKENS, MOST_REQUESTS = 12, 17, 8


def patterns(k: int) -> list[tuple[int, ...]]:
    """Accept counts per pass: each count alone, every change from one count to another, and a cycle through all."""
    single = [(count,) for count in range(k + 1)]
    changes = list(itertools.permutations(range(k + 1), 2)) if k <= 4 else [(0, k), (k, 0)]
    return list(dict.fromkeys([*single, *changes, tuple(range(k + 1))]))


def script_for(texts: dict[str, tuple[int, ...]], pattern: tuple[int, ...], vocab: int, k: int) -> ScriptedProposer:
    """A proposer whose passes accept `pattern` in turn, given each request's whole text."""
    passes: dict[str, int] = {}

    def propose(sequence: Sequence, room: int) -> list[int]:
        name = sequence.request.request_id
        turn = passes[name] = passes.get(name, -1) + 1
        accept = pattern[turn % len(pattern)]
        right = texts[name][len(sequence.token_ids) :][:room]
        # One past the right token is wrong; everything after the first wrong draft is never looked at
        return [token if i < accept else (token + 1) % vocab for i, token in enumerate(right)]

    return ScriptedProposer(propose, k)


def check_scripted(bundle: Bundle, seed: int = 0, device: str | None = None) -> int:
    """Run all patterns, for one request and for a batch of up to MOST_REQUESTS; returns how many passed.

    Where the bundle has a schedule, each pattern also runs under it, with requests that end one after another, so that
    K and the rows of a pass change on the way.

    Raises:
        CompileError: a pattern's text differs from plain decoding.
    """
    manifest = bundle.manifest
    k, vocab = manifest.speculation.num_speculative_tokens, manifest.target.vocab_size
    room = manifest.limits.max_model_len
    prompt_len = min(PROMPT_TOKENS, room // 2)
    new = min(NEW_TOKENS, room - prompt_len)
    numbers = random.Random(seed)
    # Lengths differ, so that requests end at different times, and stay within the model's
    spread = max(1, room - 1 - prompt_len)
    lengths = [prompt_len + i % spread for i in range(min(manifest.limits.max_num_seqs, MOST_REQUESTS))]
    prompts = [tuple(numbers.randrange(vocab) for _ in range(length)) for length in lengths]
    requests = [
        Request(str(i), prompt, max_tokens=new, ignore_eos=True, sampling=_sampling(manifest, i))
        for i, prompt in enumerate(prompts)
    ]
    engine = Engine.load(bundle, speculation=False, device=device)
    plain = {output.request_id: output for output in engine.generate(requests)}
    texts = {name: output.prompt_token_ids + output.token_ids for name, output in plain.items()}
    runs: list[tuple[list[Request], KSchedule]] = [(requests, KSchedule.constant(k))]
    if len(requests) > 1:
        runs.insert(0, (requests[:1], KSchedule.constant(k)))
    if manifest.speculation.schedule is not None:
        runs.append((_ending_in_turn(requests), manifest.speculation.schedule))
    passed = 0
    for pattern in patterns(k):
        # The graphs are open already; only the proposer differs
        for group, schedule in runs:
            scripted = Engine(engine.graphs, script_for(texts, pattern, vocab, k), schedule=schedule)
            _forget_kv(scripted, requests)
            for request, output in zip(group, scripted.generate(group), strict=True):
                right = plain[output.request_id].token_ids[: request.max_tokens]
                _must_equal(output.token_ids, right, pattern)
        passed += 1
    return passed


def _ending_in_turn(requests: Seq[Request]) -> list[Request]:
    """The same requests with ever more tokens to generate, the last with as many as before."""
    count = len(requests)
    return [
        replace(request, max_tokens=max(1, request.max_tokens * place // count))
        for place, request in enumerate(requests, start=1)
    ]


def _sampling(manifest: Manifest, index: int) -> SamplingParams:
    """Greedy; of graphs that draw tokens too, every other request draws them, the first one among these."""
    if manifest.sampling != "random" or index % 2:
        return GREEDY
    return SamplingParams(temperature=1.0, top_p=0.95, seed=index)


def _forget_kv(engine: Engine, requests: list[Request]) -> None:
    """Overwrite what earlier runs left: it is right for the same text, and would hide a KV row that is not written."""
    tokens = (len(request.prompt_token_ids) + request.max_tokens for request in requests)
    used = 1 + sum(engine.blocks.blocks_for(count) for count in tokens)
    for pool in engine.graphs.pools.values():
        (pool if isinstance(pool, DeviceTensor) else pool[:used]).fill_(1)


def _must_equal(got: tuple[int, ...], want: tuple[int, ...], pattern: tuple[int, ...]) -> None:
    """Raises CompileError naming the first token that differs."""
    if got == want:
        return
    pairs = zip(got, want, strict=False)
    at = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), min(len(got), len(want)))
    raise CompileError(
        f"Scripted drafts that accept {pattern} change the text",
        expected=f"plain decoding's {want[at : at + 4]} from token {at}",
        found=f"{got[at : at + 4]}",
        repair="this is a defect of the builder; please report it with build.json",
    )
