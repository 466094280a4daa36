"""Errors that a user can cause: what was expected, what was found, and the command or edit that repairs it.

Every such error of both halves derives from `Eagle3Error`. The console scripts print it as one sentence with a
`hint:` line and leave with its exit code; nobody sees a traceback. An exception of any other type is a defect of
ours and leaves with exit code 1.

Exit codes: 0 ok, 1 unexpected, 2 usage, 3 invalid configuration, 4 incompatible host, 5 integrity, 6 compile failed,
7 cache miss under --frozen.
"""

from __future__ import annotations


class Eagle3Error(Exception):
    """An error with a repair.

    Args:
        what: what went wrong, without a full stop ("max_model_len is larger than the model allows").
        expected: what would have been right, or "" where `what` says it all.
        found: what was there instead, or "".
        repair: the edit or command that mends it; printed after `hint:`.
    """

    exit_code = 1

    def __init__(self, what: str, *, expected: str = "", found: str = "", repair: str = "") -> None:
        self.what, self.expected, self.found, self.repair = what, expected, found, repair
        super().__init__(self.sentence())

    def sentence(self) -> str:
        """The error as one sentence: `what: expected X, found Y.`"""
        parts = [f"expected {self.expected}"] if self.expected else []
        parts += [f"found {self.found}"] if self.found else []
        return self.what + (": " + ", ".join(parts) if parts else "") + "."

    def to_json(self) -> dict[str, object]:
        """The error as `--json` prints it."""
        return {
            "error": type(self).__name__,
            "exit_code": self.exit_code,
            "message": self.sentence(),
            "expected": self.expected,
            "found": self.found,
            "repair": self.repair,
        }


class UsageError(Eagle3Error):
    """The command line, or one request, asks for something that cannot be done."""

    exit_code = 2


class ConfigError(Eagle3Error):
    """The YAML, a checkpoint's config.json, or a combination of both is invalid."""

    exit_code = 3


class HostError(Eagle3Error):
    """This machine cannot build or run what was asked."""

    exit_code = 4


class IntegrityError(Eagle3Error):
    """A bundle's files are not what its manifest says, or its manifest is not one."""

    exit_code = 5


class CompileError(Eagle3Error):
    """One or more graphs failed to compile, or a compiled graph failed its check."""

    exit_code = 6


class CacheMissError(Eagle3Error):
    """`--frozen` was given and a graph is not in the cache."""

    exit_code = 7


class RequestError(Eagle3Error):
    """One request ended before its answer was whole, while others went on; what it had generated stays.

    Args:
        code: the reason for programs, as runtime/failures.py names them.
    """

    def __init__(self, what: str, *, expected: str = "", found: str = "", repair: str = "", code: str) -> None:
        super().__init__(what, expected=expected, found=found, repair=repair)
        self.code = code


class ErrorGroup(Eagle3Error):
    """Several problems of one kind, reported together, one sentence each.

    Its exit code is that of its first member.
    """

    def __init__(self, what: str, problems: list[Eagle3Error]) -> None:
        if not problems:
            raise ValueError("an ErrorGroup needs at least one problem")
        self.problems = problems
        super().__init__(what, repair=problems[0].repair if len(problems) == 1 else "")
        self.exit_code = problems[0].exit_code

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), "problems": [problem.to_json() for problem in self.problems]}


def render(error: Eagle3Error) -> list[str]:
    """The lines that a terminal shows for `error`: one sentence per problem, each with its `hint:`.

    Characters that do not print are escaped. What was found may come from a foreign file, which must not be able to
    steer the terminal, nor to stop the message by a character that no encoding has.
    """
    lines = [f"error: {error.sentence()}"]
    if isinstance(error, ErrorGroup):
        for problem in error.problems:
            lines.append(f"  - {problem.sentence()}")
            if problem.repair:
                lines.append(f"    hint: {problem.repair}")
    elif error.repair:
        lines.append(f"hint: {error.repair}")
    return [_printable(line) for line in lines]


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)
