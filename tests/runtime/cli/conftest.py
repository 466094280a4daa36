"""A command line without a model: a scripted engine, and a bundle folder that holds a tokenizer only."""

from __future__ import annotations

import io
import json
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from runtime import commands
from runtime.bundle.errors import RequestError, UsageError
from runtime.cli import main
from runtime.request import FinishReason, Request, RequestOutput, SpecDecodeStats, StepOutput, Timing
from runtime.sampling.params import TokenLogprobs
from runtime.text import StopStrings, Tokenizer
from runtime.text.tokenizer import TokenizerInfo

EOS = 256
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
INFO = {
    "bos_token": None,
    "eos_token": "<eos>",
    "pad_token": None,
    "add_bos": False,
    "eos_token_ids": [EOS],
}
TOKENIZER_INFO = TokenizerInfo(None, "<eos>", None, False, (EOS,))


class ScriptedEngine:
    """Answers every prompt with the script's text and EOS, two tokens a step, without any model.

    A stop string or stop id ends it as the real engine would. `change(token_ids, speculation, batch)` may alter an
    answer, to play an engine that is not exact; `on_step` is called before each step.
    """

    def __init__(self, script: Script, speculation: bool) -> None:
        self.script, self.speculation = script, speculation
        self.queued: dict[str, tuple[Request, list[int], int | str | None]] = {}
        self.committed: dict[str, int] = {}
        self.outputs: list[RequestOutput] = []

    def add_request(self, request: Request) -> None:
        longest = self.script.max_model_len - 1
        if len(request.prompt_token_ids) > longest:
            found = f"{len(request.prompt_token_ids)} tokens"
            raise UsageError(
                f"Request {request.request_id} cannot run",
                expected=f"at most {longest} tokens",
                found=found,
                repair="shorten it",
            )
        self.script.requests.append(request)
        ids = [*self.script.answer.encode(), EOS]
        ids = (ids * request.max_tokens if request.ignore_eos else ids)[: request.max_tokens]
        self.queued[request.request_id] = (request, *self.cut(request, ids))

    def cut(self, request: Request, ids: list[int]) -> tuple[list[int], int | str | None]:
        """The ids up to the first stop id or stop string that counts, and which it is."""
        sampling = request.sampling
        strings = StopStrings(self.script.tokenizer, sampling.stop, skip=sampling.min_tokens)
        for count, token in enumerate(ids, start=1):
            if token in sampling.stop_token_ids and count > sampling.min_tokens:
                return ids[:count], token
            if (found := strings.push([token])[1]) is not None:
                return ids[:count], found
        return ids, None

    def abort(self, request_id: str) -> None:
        self.queued.pop(request_id, None)
        self.script.aborted.append(request_id)

    def has_unfinished(self) -> bool:
        return bool(self.queued)

    def step(self) -> list[StepOutput]:
        self.script.on_step()
        self.script.largest_batch = max(self.script.largest_batch, len(self.queued))
        steps: list[StepOutput] = []
        for name, (request, ids, stop_reason) in list(self.queued.items()):
            done = self.committed.get(name, 0)
            new = ids[done : done + 2]
            self.committed[name] = done + len(new)
            reason: FinishReason | None = None
            if self.committed[name] == len(ids):
                by_eos = ids[-1] == EOS and not request.ignore_eos
                reason = "stop" if by_eos or stop_reason is not None else "length"
                self.finish(request, ids, reason, stop_reason)
            steps.append(StepOutput(name, tuple(new), reason, stop_reason=stop_reason if reason else None))
        return steps

    def finish(self, request: Request, ids: list[int], reason: FinishReason, stop_reason: int | str | None) -> None:
        del self.queued[request.request_id]
        prompt = bytes(token for token in request.prompt_token_ids if token < 256)
        error = self.script.error(prompt.decode(errors="replace"))
        spec = SpecDecodeStats()
        if self.speculation:
            spec.observe(3, 1)
        answer = self.script.change(tuple(ids), self.speculation, self.script.largest_batch > 1)
        self.outputs.append(
            RequestOutput(
                request.request_id,
                request.prompt_token_ids,
                answer,
                reason if error is None else "error",
                Timing(arrived=1.0, first_token=1.5, last_token=2.0),
                spec,
                self.script.logprobs(answer, self.speculation) if request.sampling.logprobs is not None else (),
                stop_reason,
                self.script.num_cached_tokens,
                error=error,
            )
        )

    def take_finished(self) -> list[RequestOutput]:
        # The last one first: whoever wants the order of the prompts has to make it.
        finished, self.outputs = self.outputs[::-1], []
        return finished

    def report(self) -> dict[str, object]:
        return {"steps": 7, "graph_ms": {"target_verify": 1.25}}


@dataclass
class Script:
    """What the scripted engine does, and what it saw."""

    answer: str = "It is blue."
    max_model_len: int = 1024
    change: Callable[[tuple[int, ...], bool, bool], tuple[int, ...]] = lambda ids, speculation, batch: ids
    on_step: Callable[[], None] = lambda: None
    logprobs: Callable[[tuple[int, ...], bool], tuple[TokenLogprobs, ...]] = lambda ids, speculation: tuple(
        TokenLogprobs(token, -0.5, 1, ((token, -0.5),)) for token in ids
    )
    num_cached_tokens: int = 0
    error: Callable[[str], RequestError | None] = lambda prompt: None
    tokenizer: Tokenizer = field(default_factory=lambda: Tokenizer(byte_tokenizer(), TOKENIZER_INFO))
    requests: list[Request] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    loaded: list[bool] = field(default_factory=list)
    settings: list[dict[str, object]] = field(default_factory=list)
    largest_batch: int = 0

    def prompts(self) -> list[str]:
        """The prompts that the engine got, as text."""
        return [bytes(request.prompt_token_ids).decode() for request in self.requests]


def byte_tokenizer() -> tokenizers.Tokenizer:
    """Id b is byte b, and 256 is <eos>."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    marks = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    backend = tokenizers.Tokenizer(models.BPE({marks[byte]: byte for byte in range(256)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<eos>"])
    return backend


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer(byte_tokenizer(), TOKENIZER_INFO, TEMPLATE)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """In place of the engine and of the bundle's verification."""
    script = Script()

    class Engine:
        @staticmethod
        def load(
            bundle: object, speculation: bool = True, device: str | None = None, **settings: object
        ) -> ScriptedEngine:
            script.loaded.append(speculation)
            script.settings.append(settings)
            script.largest_batch = 0
            return ScriptedEngine(script, speculation)

    module = types.ModuleType("runtime.engine")
    module.Engine = Engine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "runtime.engine", module)

    def open_scripted_bundle(path: Path, device: str | None = None) -> types.SimpleNamespace:
        limits = types.SimpleNamespace(max_model_len=script.max_model_len, max_num_seqs=4)
        target = types.SimpleNamespace(vocab_size=257, eos_token_ids=(EOS,))
        return types.SimpleNamespace(
            root=path,
            manifest=types.SimpleNamespace(name="scripted", limits=limits, target=target),
            tokenizer_files=lambda: {file.name: file.read_bytes() for file in path.glob("tokenizer/*")},
        )

    monkeypatch.setattr(commands, "open_bundle", open_scripted_bundle)
    # It has no passes to look at
    monkeypatch.setattr(commands, "acceptance", lambda session, requests: None)
    return script


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle folder with a tokenizer; the scripted engine needs nothing else."""
    folder = tmp_path / "bundle" / "tokenizer"
    folder.mkdir(parents=True)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_info.json").write_text(json.dumps(INFO))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return tmp_path / "bundle"


@pytest.fixture
def toy_bundle(tmp_path: Path) -> Path:
    """A bundle folder without a tokenizer."""
    folder = tmp_path / "toy"
    folder.mkdir()
    return folder


@dataclass
class Result:
    code: int
    out: str
    err: str


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def run(script: Script, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """`run(*arguments, stdin=..., terminal=...)`: the console script with the scripted engine."""

    def run(*arguments: object, stdin: str = "", terminal: bool = False) -> Result:
        screen = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", Terminal(stdin) if terminal else io.StringIO(stdin))
            if terminal:
                patch.setattr(sys, "stdout", screen)
            code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(code, screen.getvalue() if terminal else captured.out, captured.err)

    return run
