"""What the target is asked: a file of conversations of which only the user's side is written.

    {"kind": "poem", "turns": ["Write a poem about rain.", "Make it shorter."], "system": "You are a poet."}

A line may hold {"prompt": "..."} for a single turn instead, as the prompts of `eagle3-run` do. The answers in between
are the target's own. A conversation of n turns becomes n training sequences, each with the turns before it as its
prompt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.bundle.errors import UsageError
from runtime.text import Tokenizer


@dataclass(frozen=True)
class Conversation:
    """A conversation as far as it has come.

    Attributes:
        kind: kind of task, for balance and statistics; "" where the file has none.
        turns: all user messages.
        answers: the target's answers so far, fewer than turns.
        system: the system message; None for the chat template's default.
    """

    kind: str
    turns: tuple[str, ...]
    system: str | None = None
    answers: tuple[str, ...] = ()

    def answered(self, answer: str) -> Conversation | None:
        """The conversation with the next user turn open, or None when the last one has been answered."""
        answers = (*self.answers, answer)
        return replace(self, answers=answers) if len(answers) < len(self.turns) else None

    def prompt(self, tokenizer: Tokenizer) -> list[int]:
        """Token ids up to where the target's next answer begins."""
        messages = [] if self.system is None else [{"role": "system", "content": self.system}]
        for turn, answer in zip(self.turns, self.answers, strict=False):
            messages += [{"role": "user", "content": turn}, {"role": "assistant", "content": answer}]
        messages.append({"role": "user", "content": self.turns[len(self.answers)]})
        return tokenizer.encode(tokenizer.apply_chat_template(messages), add_special_tokens=False)


def read_conversations(path: Path) -> Iterator[Conversation]:
    """The conversations of a JSON-lines file, in order; blank lines are skipped.

    Raises:
        UsageError: the file cannot be read, or a line is not a conversation; the line is named.
    """
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _conversation(line, f"line {number} of {path.name}")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(
            f"the prompts {path} cannot be read", found=str(reason), repair="give a JSON-lines file of conversations"
        ) from None


def _conversation(line: str, where: str) -> Conversation:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        raw = None
    turns = raw.get("turns", [raw["prompt"]] if "prompt" in raw else None) if isinstance(raw, dict) else None
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise UsageError(
            f"{where} is not a conversation",
            expected='{"turns": ["text", ...]}, with "kind" and "system" if wanted',
            found=line.strip()[:60],
            repair="correct the line",
        )
    kind, system = raw.get("kind", ""), raw.get("system")
    if not isinstance(kind, str) or not isinstance(system, str | None):
        raise UsageError(f"kind and system of {where} are not both text", repair="correct the line")
    return Conversation(kind, tuple(turns), system)
