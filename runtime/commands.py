"""What `eagle3-run` does once its options are read: answer prompts, chat, or check.

Each command opens the bundle, makes an engine, and returns an exit code. Answers go to stdout, all else to
stderr.
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from runtime.bundle.errors import UsageError
from runtime.bundle.open import MANIFEST, SIMULATOR, Bundle, open_bundle
from runtime.chat import HELP, Chat
from runtime.check import DEFAULT_MAX_TOKENS as CHECK_MAX_TOKENS
from runtime.check import builtin_prompts, compare
from runtime.generate import TokenEngine, generate
from runtime.output import InOrder, Out, Streamer, run_stats, stats_lines
from runtime.prompts import Prompt, to_requests
from runtime.request import Request
from runtime.text import Tokenizer, has_tokenizer

DEFAULT_MAX_TOKENS = 256
NO_TOKENIZER = 'give ids with --prompts FILE.jsonl, in lines like {"prompt_token_ids": [1, 2, 3]}'


@dataclass(frozen=True)
class Options:
    """The options that every command shares; `max_tokens` and `device` are None where they were not given."""

    raw: bool = False
    max_tokens: int | None = None
    speculation: bool = True
    ignore_eos: bool = False
    stats: bool = False
    as_json: bool = False
    quiet: bool = False
    device: str | None = None


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
        engine: TokenEngine = Engine.load(self.bundle, speculation=speculation, device=self.options.device)
        how = "" if speculation else " for plain decoding"
        self.progress(f"Loaded {self.bundle.manifest.name}{how} in {time.perf_counter() - started:.1f} s.")
        return engine

    def requests(self, prompts: tuple[Prompt, ...], *, raw: bool, max_tokens: int) -> list[Request]:
        return to_requests(
            prompts,
            self.tokenizer,
            raw=raw,
            vocab_size=self.bundle.manifest.target.vocab_size,
            max_tokens=self.options.max_tokens or max_tokens,
            ignore_eos=self.options.ignore_eos,
        )

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
    folder = bundle.root / "tokenizer"
    session = Session(bundle, Tokenizer.load(folder) if has_tokenizer(folder) else None, options)
    if options.device == SIMULATOR:
        session.progress("Running the graphs on this CPU: what they compute, not how fast a device computes it.")
    return session


def _import_torch() -> None:
    with suppress(Exception):  # the engine imports it again, and raises where the error is handled
        importlib.import_module("torch")


def answer_prompts(session: Session, prompts: tuple[Prompt, ...]) -> int:
    """Answer the prompts as one batch, and print the answers in order; a single one streams on a terminal."""
    options, eos_token_ids = session.options, session.bundle.manifest.target.eos_token_ids
    requests = session.requests(prompts, raw=options.raw, max_tokens=DEFAULT_MAX_TOKENS)
    engine = session.load_engine(options.speculation)
    out = Out(sys.stdout)
    names = [prompt.where for prompt in prompts]
    started = time.perf_counter()
    if len(requests) == 1 and out.is_terminal and not options.as_json:
        streamer = Streamer(out, session.tokenizer, eos_token_ids)
        outputs = list(generate(engine, requests, names=names, on_step=streamer.push))
        streamer.finish()
    else:
        in_order = InOrder(out, prompts, session.tokenizer, eos_token_ids, as_json=options.as_json)
        outputs = []
        for output in generate(engine, requests, names=names):
            outputs.append(output)
            in_order.add(int(output.request_id), output)
    if options.stats:
        session.print_stats(run_stats(outputs, time.perf_counter() - started, engine.report()))
    return 0


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
    engine = session.load_engine(options.speculation)
    conversation = Chat(
        engine,
        session.tokenizer,
        Out(sys.stdout),
        max_model_len=manifest.limits.max_model_len,
        max_tokens=options.max_tokens or DEFAULT_MAX_TOKENS,
        eos_token_ids=manifest.target.eos_token_ids,
        ignore_eos=options.ignore_eos,
    )
    session.progress(HELP)
    conversation.run(lambda: input("> "))
    if options.stats:
        session.print_stats(engine.report())
    return 0


def check(session: Session, prompts: tuple[Prompt, ...]) -> int:
    """Speculation against plain decoding on `prompts`, or the built-in ones; 1 when any token differs."""
    manifest, tokenizer, raw = session.bundle.manifest, session.tokenizer, session.options.raw
    if not prompts:
        prompts = builtin_prompts(tokenizer is not None, manifest.target.vocab_size, manifest.limits.max_model_len)
        raw = raw or (tokenizer is not None and not tokenizer.has_chat_template)
    requests = session.requests(prompts, raw=raw, max_tokens=CHECK_MAX_TOKENS)
    started = time.perf_counter()
    results, stats = compare(session.load_engine, prompts, requests)
    out = Out(sys.stdout)
    for number, result in enumerate(results, start=1):
        if session.options.as_json:
            out.json(result.to_json())
        else:
            out.line(f"{number}. {result.prompt.title(40)}: {result.sentence()}")
    session.progress(
        f"Compared {len(results)} prompts in {time.perf_counter() - started:.1f} s; speculation accepted "
        f"{stats.num_accepted_tokens} of {stats.num_draft_tokens} draft tokens."
    )
    if session.options.stats:
        session.print_stats({"spec_decode": stats.to_json()})
    different = sum(not result.same for result in results)
    if different:
        session.progress(f"Speculation or batching changed {different} of {len(results)} answers.")
    return 1 if different else 0
