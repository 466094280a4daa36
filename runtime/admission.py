"""What the engine refuses of a request before it is queued, each in one sentence with its repair."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace

from runtime.blocks import BlockManager
from runtime.bundle.errors import UsageError
from runtime.bundle.manifest import Manifest
from runtime.graphs import GraphSet
from runtime.request import Request
from runtime.sequence import Sequence, StopWatch

# Makes what looks for a request's stop strings; None where there is no tokenizer to make text with
Watches = Callable[[Request], StopWatch]


def sequence_of(request: Request, graphs: GraphSet, blocks: BlockManager, watches: Watches | None) -> Sequence:
    """The state of a request that can run, with a seed of its own where it needs one and gave none.

    Raises:
        UsageError: the prompt is empty, too long for the bundle, or holds an id outside the vocabulary; max_tokens is
            below 1; sampling asks for what is out of range or what the bundle cannot do; or the KV pool could never
            hold the request.
    """
    manifest = graphs.manifest
    what = f"Request {request.request_id} cannot run"
    _check_prompt(what, request, manifest)
    request.sampling.check(what, manifest.target.vocab_size)
    _check_sampling(what, request, graphs)
    if request.sampling.stop and watches is None:
        raise UsageError(
            what,
            expected="no stop strings, for the bundle has no tokenizer",
            found=repr(request.sampling.stop[0]),
            repair="give stop_token_ids instead",
        )
    limit = min(len(request.prompt_token_ids) + request.max_tokens, manifest.limits.max_model_len)
    needed = blocks.blocks_for(limit)
    if needed > blocks.num_blocks - 1:
        raise UsageError(
            what,
            expected=f"at most {blocks.num_blocks - 1} KV blocks of {blocks.block_size} tokens",
            found=f"{needed} blocks for {limit} tokens",
            repair="lower max_tokens, or build the bundle with a larger kv_blocks",
        )
    if request.sampling.seed is None and not request.sampling.greedy:
        request = replace(request, sampling=replace(request.sampling, seed=secrets.randbits(63)))
    eos = frozenset(() if request.ignore_eos else manifest.target.eos_token_ids)
    return Sequence(
        request,
        limit,
        list(request.prompt_token_ids),
        stop_token_ids=eos | frozenset(request.sampling.stop_token_ids),
        eos_token_ids=eos,
        watch=watches(request) if watches is not None and request.sampling.stop else None,
    )


def _check_prompt(what: str, request: Request, manifest: Manifest) -> None:
    limits, prompt = manifest.limits, request.prompt_token_ids
    if not prompt:
        raise UsageError(what, expected="at least one prompt token", found="none", repair="give it a prompt")
    if len(prompt) > limits.max_model_len - 1:
        raise UsageError(
            what,
            expected=f"a prompt of at most {limits.max_model_len - 1} tokens (max_model_len - 1)",
            found=f"{len(prompt)}",
            repair="shorten the prompt, or build the bundle with a larger max_model_len",
        )
    bad = next((token for token in prompt if not 0 <= token < manifest.target.vocab_size), None)
    if bad is not None:
        raise UsageError(
            what,
            expected=f"token ids from 0 to {manifest.target.vocab_size - 1}",
            found=str(bad),
            repair="encode the prompt with the bundle's own tokenizer",
        )
    if request.max_tokens < 1:
        raise UsageError(
            what, expected="max_tokens of at least 1", found=str(request.max_tokens), repair="raise max_tokens"
        )


def _check_sampling(what: str, request: Request, graphs: GraphSet) -> None:
    """Refuse what needs logits that the graphs do not give."""
    params = request.sampling
    if graphs.manifest.sampling == "logits" or not params.needs_logits:
        return
    if graphs.manifest.sampling == "random":
        from runtime.sampling.device import unsupported

        if (name := unsupported(params)) is None:
            return
        raise UsageError(
            what,
            expected="temperature, top_k, top_p and min_p alone, which this bundle's graphs sample with",
            found=name,
            repair="leave it out, or build the bundle without on_device_sampling_config",
        )
    raise UsageError(
        what,
        expected="greedy decoding, the only one in this bundle's graphs (all_greedy)",
        found=f"temperature {params.temperature:g}" if not params.greedy else "a parameter that needs logits",
        repair="set temperature 0 and leave penalties, biases and logprobs out, or build the bundle without "
        "on_device_sampling_config",
    )
