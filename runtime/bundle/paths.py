"""Paths inside a bundle: relative, forward slashes, no way out.

A manifest comes from elsewhere. A path in it MUST be relative, MUST NOT hold `..`, a backslash, a colon (a drive), a
character that does not print, or an empty part, and the file MUST NOT be a symbolic link or lie behind one.
"""

from __future__ import annotations

from pathlib import Path

from runtime.bundle.errors import IntegrityError


def refuse(relative: str, found: str) -> IntegrityError:
    """The error for an unsafe path in a manifest."""
    return IntegrityError(
        f"Refusing to load since the manifest names an unsafe path {relative!r}",
        expected="a plain relative path inside the bundle",
        found=found,
        repair="get the bundle again from where it was built",
    )


def check_relative(relative: str) -> None:
    """Raises IntegrityError unless `relative` is a plain relative path."""
    if "\\" in relative or ":" in relative:
        raise refuse(relative, "a backslash or colon in it")
    if not relative.isprintable():  # NUL, line breaks, terminal codes, lone surrogates
        raise refuse(relative, "a character that does not print")
    if any(part in ("", ".", "..") for part in relative.split("/")):
        raise refuse(relative, "an absolute path, or a part that is empty, '.' or '..'")


def inside(root: Path, relative: str) -> Path:
    """`root / relative`, refused when it is unsafe or passes through a symbolic link."""
    check_relative(relative)
    path = root
    for part in relative.split("/"):
        path = path / part
        try:
            is_link = path.is_symlink()
        except OSError as error:  # a name longer than the file system takes, a folder closed to this user
            raise refuse(relative, error.strerror or "an error of the file system") from None
        if is_link:
            raise refuse(relative, "a symbolic link")
    return path
