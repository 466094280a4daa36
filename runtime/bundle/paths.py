"""Paths inside a bundle: relative, forward slashes, no way out.

A manifest comes from elsewhere. A path in it MUST be relative, MUST NOT hold `..`, a backslash, a drive or an empty
part, and the file MUST NOT be a symbolic link or lie behind one.
"""

from __future__ import annotations

from pathlib import Path

from runtime.bundle.errors import IntegrityError


def _refuse(relative: str, found: str) -> IntegrityError:
    return IntegrityError(
        f"Refusing to load since the manifest names an unsafe path {relative!r}",
        expected="a plain relative path inside the bundle",
        found=found,
        repair="get the bundle again from where it was built",
    )


def check_relative(relative: str) -> None:
    """Raises IntegrityError unless `relative` is a plain relative path."""
    parts = relative.split("/")
    if "\\" in relative or "\0" in relative or ":" in parts[0]:
        raise _refuse(relative, "a backslash, colon or NUL in it")
    if any(part in ("", ".", "..") for part in parts):
        raise _refuse(relative, "an absolute path, or a part that is empty, '.' or '..'")


def inside(root: Path, relative: str) -> Path:
    """`root / relative`, refused when it is unsafe or passes through a symbolic link."""
    check_relative(relative)
    path = root
    for part in relative.split("/"):
        path = path / part
        if path.is_symlink():
            raise _refuse(relative, "a symbolic link")
    return path
