"""The interactive chat: a conversation of several turns, text as it comes, Ctrl-C for an answer that went
wrong.

Every turn sends the whole conversation. When it outgrows the bundle's max_model_len the oldest turns are
dropped, and the user is told; a single message that is too long is refused, and the conversation stays as it
was.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from runtime.bundle.errors import RequestError, UsageError, render
from runtime.failures import failed
from runtime.generate import TokenEngine, generate
from runtime.output import Out, Streamer
from runtime.request import Request, StepOutput
from runtime.sampling.params import GREEDY, SamplingParams
from runtime.text import Message, Tokenizer

EXIT = "/exit"
HELP = f"{EXIT} or Ctrl-D ends the chat, Ctrl-C stops an answer."


class Chat:
    """One conversation.

    Args:
        engine: an engine with nothing unfinished.
        tokenizer: one with a chat template.
        out: where answers and remarks go.
        max_model_len: prompt and answer together hold at most so many tokens.
        max_tokens: of one answer.
        sampling: of every answer; a stop string cuts what is shown and what the conversation keeps.
    """

    def __init__(
        self,
        engine: TokenEngine,
        tokenizer: Tokenizer,
        out: Out,
        *,
        max_model_len: int,
        max_tokens: int,
        ignore_eos: bool = False,
        sampling: SamplingParams = GREEDY,
    ) -> None:
        self._engine, self._tokenizer, self._out = engine, tokenizer, out
        self._max_model_len, self._max_tokens = max_model_len, max_tokens
        self._ignore_eos, self._sampling = ignore_eos, sampling
        self._turns = 0
        self.messages: list[Message] = []

    def run(self, read_line: Callable[[], str]) -> None:
        """Answer line after line until `read_line` gives /exit or raises EOFError.

        Ctrl-C while a line is read is KeyboardInterrupt and passes through.
        """
        while True:
            try:
                line = read_line().strip()
            except EOFError:
                self._out.line()
                return
            if line == EXIT:
                return
            if line:
                self.answer(line)

    def answer(self, text: str) -> None:
        """Answer the user's `text`, and keep both in the conversation, or neither where the answer is not whole."""
        before = list(self.messages)
        self.messages.append({"role": "user", "content": text})
        try:
            ids = self._fit()
            self._turns += 1
            request = Request(f"turn-{self._turns}", ids, self._max_tokens, self._ignore_eos, self._sampling)
            answer = self._stream(request)
        except (UsageError, RequestError) as error:
            self.messages = before
            for line in render(error):
                self._out.line(line)
            return
        self.messages.append({"role": "assistant", "content": answer})

    def _stream(self, request: Request) -> str:
        """Run `request` and print its text. Ctrl-C stops it between two steps, never within one.

        Raises:
            RequestError: it ended before its answer was whole, or its text could not be made.
        """
        streamer = Streamer(self._out, self._tokenizer, self._sampling)
        broken: list[RequestError] = []

        def push(step: StepOutput) -> None:
            try:
                streamer.push(step)
            except Exception as error:  # in making text of this answer's ids
                broken.append(failed(request.request_id, error))

        with interrupt_flag() as interrupted:
            stop = lambda: bool(broken) or interrupted()  # noqa: E731
            outputs = list(generate(self._engine, [request], on_step=push, stop=stop))
        if broken:
            raise broken[0]
        streamer.finish(aborted=not outputs)
        if outputs and outputs[0].error is not None:
            raise outputs[0].error
        if not outputs:
            self._out.line("(stopped)")
        elif outputs[0].finish_reason == "length":
            room = self._max_model_len - len(request.prompt_token_ids)
            limit = "--max-tokens" if self._max_tokens <= room else "the bundle's max_model_len"
            self._out.line(f"(cut at {len(outputs[0].token_ids)} tokens by {limit})")
        return streamer.text

    def _fit(self) -> tuple[int, ...]:
        """The conversation as ids, without its oldest turns where all of it leaves no room for an answer."""
        room = min(self._max_tokens, max(1, self._max_model_len // 4))
        dropped = 0
        while len(ids := self._encode()) > self._max_model_len - room and len(self.messages) > 1:
            del self.messages[:2]  # a user's message and its answer
            dropped += 1
        if len(ids) > self._max_model_len - 1:
            raise UsageError(
                "The message is too long for this bundle",
                expected=f"at most {self._max_model_len - 1} tokens",
                found=f"{len(ids)} tokens with the chat template",
                repair="shorten it, or build a bundle with a larger max_model_len",
            )
        if dropped:
            turns = "turn was" if dropped == 1 else f"{dropped} turns were"
            self._out.line(
                f"(The conversation passed max_model_len {self._max_model_len}; the oldest {turns} dropped.)"
            )
        return ids

    def _encode(self) -> tuple[int, ...]:
        text = self._tokenizer.apply_chat_template(self.messages)
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))


@contextmanager
def interrupt_flag() -> Iterator[Callable[[], bool]]:
    """In the block the first Ctrl-C makes the yielded function return True; a second one interrupts."""
    pressed = False

    def note(signum: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, previous)
