"""What `eagle3-run` does once its options are read: answer prompts, chat, or check.

Each command opens the bundle, makes an engine, and returns an exit code. Answers go to stdout, all else to
stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from runtime.bundle.errors import RequestError, UsageError, render
from runtime.bundle.open import MANIFEST, SIMULATOR, Bundle, open_bundle
from runtime.chat import HELP, Chat
from runtime.check import DEFAULT_MAX_TOKENS as CHECK_MAX_TOKENS
from runtime.check import builtin_prompts, compare
from runtime.generate import TokenEngine, generate
from runtime.output import InOrder, Out, Streamer, run_stats, stats_lines
from runtime.prompts import Prompt, to_requests
from runtime.request import Request
from runtime.sampling.params import GREEDY, SamplingParams
from runtime.sampling.parse import sampling_params
from runtime.text import Tokenizer

if TYPE_CHECKING:
    from runtime.acceptance import Acceptance

DEFAULT_MAX_TOKENS = 256
FIXED_SEED = 0
RANDOM_ONLY = ("top_k", "top_p", "min_p", "seed")
BAD_OPTIONS = "These options cannot be used"
NO_TOKENIZER = 'give ids with --prompts FILE.jsonl, in lines like {"prompt_token_ids": [1, 2, 3]}'


@dataclass(frozen=True)
class Options:
    """The options that every command shares; `max_tokens` and `device` are None where they were not given.

    Attributes:
        sampling: the sampling parameters that were given, by their JSON keys (`runtime.sampling.parse`).
        rejection: how drafts of random requests are accepted; None is coupled.
        prefix_caching: which prompt KV is taken from earlier requests.
    """

    raw: bool = False
    max_tokens: int | None = None
    speculation: bool = True
    ignore_eos: bool = False
    stats: bool = False
    as_json: bool = False
    quiet: bool = False
    device: str | None = None
    sampling: Mapping[str, object] = field(default_factory=dict)
    rejection: Literal["coupled", "standard"] | None = None
    prefix_caching: Literal["exact", "full", "off"] = "exact"


@dataclass(frozen=True)
class Session:
    """A verified bundle, and its tokenizer where it has one."""

    bundle: Bundle
    tokenizer: Tokenizer | None
    options: Options

    def load_engine(self, speculation: bool) -> TokenEngine:
        # Here and not above: the engine needs torch, whose import runs beside the verification.
        from runtime.engine import Engine

        started = time.perf_counter()
        engine: TokenEngine = Engine.load(
            self.bundle,
            speculation=speculation,
            device=self.options.device,
            tokenizer=self.tokenizer,
            rejection=self.options.rejection,
            prefix_caching=self.options.prefix_caching,
        )
        how = "" if speculation else " for plain decoding"
        self.progress(f"Loaded {self.bundle.manifest.name}{how} in {time.perf_counter() - started:.1f} s.")
        return engine

    def sampling(self) -> SamplingParams:
        """What the command line asks of sampling, over greedy decoding.

        Raises:
            UsageError: a value is out of range, or stop strings are given for a bundle without a tokenizer.
        """
        params = sampling_params(self.options.sampling, self.tokenizer, default=GREEDY, where=BAD_OPTIONS)
        params.check(BAD_OPTIONS, self.bundle.manifest.target.vocab_size)
        return params

    def requests(
        self, prompts: tuple[Prompt, ...], *, raw: bool, max_tokens: int, fixed_seed: bool = False
    ) -> list[Request]:
        """A request for each prompt, with the options of this session.

        Args:
            max_tokens: where neither the prompt nor the options say it.
            fixed_seed: give random requests without a seed one, for runs whose texts are compared.
        """
        requests = to_requests(
            prompts,
            self.tokenizer,
            raw=raw,
            vocab_size=self.bundle.manifest.target.vocab_size,
            max_tokens=self.options.max_tokens or max_tokens,
            ignore_eos=self.options.ignore_eos,
            sampling=self.sampling(),
        )
        self.note_options_without_effect([request.sampling for request in requests])
        return [_seeded(request) for request in requests] if fixed_seed else requests

    def note_options_without_effect(self, requests: Sequence[SamplingParams]) -> None:
        """Say which given options only matter above temperature 0, where no request is above it."""
        idle = [f"--{name.replace('_', '-')}" for name in RANDOM_ONLY if name in self.options.sampling]
        if idle and all(sampling.greedy for sampling in requests):
            self.progress(f"Temperature is 0, so {' and '.join(idle)} change{'s' * (len(idle) == 1)} nothing.")

    def progress(self, text: str) -> None:
        if not (self.options.quiet or self.options.as_json):
            click.echo(text, err=True)

    def print_stats(self, stats: Mapping[str, object]) -> None:
        as_json = self.options.as_json
        click.echo(json.dumps({"stats": stats}) if as_json else "\n".join(stats_lines(stats)), err=True)


def open_session(path: Path, options: Options) -> Session:
    """Verify the bundle at `path` and read its tokenizer, while another thread imports torch."""
    # A misspelt path is told at once: the process could not end before that import does.
    if (path / MANIFEST).is_file():
        threading.Thread(target=_import_torch, name="import torch").start()
    bundle = open_bundle(path, device=options.device)
    files = bundle.tokenizer_files()
    session = Session(bundle, Tokenizer.of(files) if files else None, options)
    if options.device == SIMULATOR:
        session.progress("Running the graphs on this CPU: what they compute, not how fast a device computes it.")
    return session


def _import_torch() -> None:
    with suppress(Exception):  # the engine imports it again, and raises where the error is handled
        importlib.import_module("torch")


def answer_prompts(session: Session, prompts: tuple[Prompt, ...]) -> int:
    """Answer the prompts as one batch, and print the answers in order; a single one streams on a terminal.

    Returns 1 where a request ended before its answer was whole: what there is of it is printed, and why.
    """
    options = session.options
    requests = session.requests(prompts, raw=options.raw, max_tokens=DEFAULT_MAX_TOKENS)
    engine = session.load_engine(options.speculation)
    out = Out(sys.stdout)
    names = [prompt.where for prompt in prompts]
    started = time.perf_counter()
    if len(requests) == 1 and out.is_terminal and not options.as_json:
        streamer = Streamer(out, session.tokenizer, requests[0].sampling)
        outputs = list(generate(engine, requests, names=names, on_step=streamer.push))
        streamer.finish()
        errors = [output.error for output in outputs if output.error is not None]
    else:
        in_order = InOrder(out, prompts, requests, session.tokenizer, as_json=options.as_json)
        outputs = []
        for output in generate(engine, requests, names=names):
            outputs.append(output)
            in_order.add(int(output.request_id), output)
        errors = [in_order.errors[index] for index in sorted(in_order.errors)]
    if not options.as_json:
        _print_errors(errors)
    if options.stats:
        session.print_stats(run_stats(outputs, time.perf_counter() - started, engine.report()))
    return 1 if errors else 0


def chat(session: Session) -> int:
    """Chat on the terminal until /exit or Ctrl-D."""
    options, manifest = session.options, session.bundle.manifest
    if session.tokenizer is None:
        raise UsageError("This bundle has no tokenizer, so there is no chat with it", repair=NO_TOKENIZER)
    if not session.tokenizer.has_chat_template:
        raise UsageError(
            "This bundle's model has no chat template, so there is no chat with it",
            repair="give a prompt, as in --raw --prompt TEXT",
        )
    with suppress(ImportError):
        import readline  # noqa: F401 - gives input() line editing and history
    sampling = session.sampling()
    session.note_options_without_effect([sampling])
    engine = session.load_engine(options.speculation)
    conversation = Chat(
        engine,
        session.tokenizer,
        Out(sys.stdout),
        max_model_len=manifest.limits.max_model_len,
        max_tokens=options.max_tokens or DEFAULT_MAX_TOKENS,
        ignore_eos=options.ignore_eos,
        sampling=sampling,
    )
    session.progress(HELP)
    conversation.run(lambda: input("> "))
    if options.stats:
        session.print_stats(engine.report())
    return 0


def check(session: Session, prompts: tuple[Prompt, ...]) -> int:
    """Speculation against plain decoding on `prompts`, or the built-in ones; 1 when anything differs.

    Random requests are drawn with the coupled rejection, which alone promises the same text, and a seed.
    """
    manifest, tokenizer, raw = session.bundle.manifest, session.tokenizer, session.options.raw
    if not prompts:
        prompts = builtin_prompts(tokenizer is not None, manifest.target.vocab_size, manifest.limits.max_model_len)
        raw = raw or (tokenizer is not None and not tokenizer.has_chat_template)
    requests = session.requests(prompts, raw=raw, max_tokens=CHECK_MAX_TOKENS, fixed_seed=True)
    if not all(request.sampling.greedy for request in requests):
        session = replace(session, options=replace(session.options, rejection=_same_text(session.options.rejection)))
    started = time.perf_counter()
    judges = acceptance(session, requests)
    results, stats = compare(session.load_engine, prompts, requests, judges)
    out = Out(sys.stdout)
    for number, result in enumerate(results, start=1):
        if session.options.as_json:
            out.json(result.to_json())
        else:
            out.line(f"{number}. {result.prompt.title(40)}: {result.sentence()}")
    scripted = ""
    if judges is not None:
        drafts = judges.scripted
        scripted = f", and {drafts.num_accepted_tokens} of {drafts.num_draft_tokens} scripted ones"
    session.progress(
        f"Compared {len(results)} prompts in {time.perf_counter() - started:.1f} s; speculation accepted "
        f"{stats.num_accepted_tokens} of {stats.num_draft_tokens} draft tokens{scripted}."
    )
    if session.options.stats:
        session.print_stats({"spec_decode": stats.to_json()})
    different, broken = sum(result.changed for result in results), sum(result.error is not None for result in results)
    if different:
        session.progress(f"Speculation or batching changed {different} of {len(results)} answers.")
    missed = sum(bool(result.misses) for result in results)
    if missed:
        session.progress(f"Passes accepted other drafts or left other KV than they should for {missed} prompts.")
    if broken:
        session.progress(f"{broken} of {len(results)} answers ended with an error, so they prove nothing.")
    return 0 if all(result.same for result in results) else 1


def acceptance(session: Session, requests: Sequence[Request]) -> Acceptance | None:
    """What judges the passes of `--check`."""
    from runtime.acceptance import Acceptance  # as the engine, only once torch is imported

    return Acceptance(session.bundle.manifest, requests, session.options.prefix_caching)


def _print_errors(errors: Sequence[RequestError]) -> None:
    """Why answers are not whole, in the words of a failing command; with EAGLE3_DEBUG=1 where it happened."""
    for error in errors:
        if error.__cause__ is not None and os.environ.get("EAGLE3_DEBUG") == "1":
            traceback.print_exception(error.__cause__)
        for line in render(error):
            click.echo(line, err=True)


def _seeded(request: Request) -> Request:
    sampling = request.sampling
    seed = FIXED_SEED if sampling.seed is None else sampling.seed
    return request if sampling.greedy else replace(request, sampling=replace(sampling, seed=seed))


def _same_text(rejection: Literal["coupled", "standard"] | None) -> Literal["coupled"]:
    if rejection == "standard":
        raise UsageError(
            "--check compares texts, and standard rejection keeps their distribution only",
            expected="coupled rejection at a temperature above 0",
            found="--rejection standard",
            repair="leave --rejection out",
        )
    return "coupled"
