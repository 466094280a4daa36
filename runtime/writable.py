"""Files that an option names to be written: whether they can be, found out before the minutes that a run takes."""

from __future__ import annotations

from pathlib import Path

from runtime.bundle.errors import UsageError


def check_writable(option: str, file: Path) -> None:
    """Open the `file` that `option` names for writing; leaves no file behind that was not there.

    Raises:
        UsageError: it cannot be written.
    """
    new = not file.exists()
    try:
        with file.open("ab"):
            pass
        if new:
            file.unlink()
    except OSError as error:
        raise unwritable(option, file, error) from None


def unwritable(option: str, file: Path, error: OSError) -> UsageError:
    """What is raised where the `file` that `option` names cannot be written."""
    return UsageError(
        f"{option} {file} cannot be written",
        expected="a file in a folder that is there and may be written to",
        found=error.strerror or str(error),
        repair="create the folder, or name another file",
    )
