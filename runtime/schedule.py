"""`KSchedule` as a command line gives it: the list itself, or the file with it that `eagle3-run tune` writes."""

from __future__ import annotations

from pathlib import Path

from runtime.bundle.errors import UsageError
from runtime.bundle.record import parse
from runtime.bundle.schedule import KEY, KSchedule

__all__ = ["KEY", "KSchedule", "read_schedule"]


def read_schedule(text: str, most: int | None = None) -> KSchedule:
    """The schedule of an option: JSON such as "[[1, 4, 3], [5, 8, 1]]", or the name of a file with that in it.

    Args:
        most: num_speculative_tokens of the bundle, where it is known.

    Raises:
        UsageError: there is no such file, it holds no JSON, or the list is no schedule (see `KSchedule.of`).
    """
    source = text
    if not text.lstrip().startswith(("[", "{")):
        source = _content(Path(text))
    try:
        value = parse(source)
    except ValueError as error:
        raise UsageError(
            f"{KEY} is not JSON",
            expected="a list such as [[1, 4, 3], [5, 8, 1]], or a file with one",
            found=str(error),
            repair="give such a list",
        ) from None
    return KSchedule.of(value, most)


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise UsageError(
            f"{KEY} names a file that cannot be read",
            expected="a list such as [[1, 4, 3], [5, 8, 1]], or a file with one",
            found=f"{str(file)!r}: {reason}",
            repair="check the file's name",
        ) from None
