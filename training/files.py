"""Files that others may read: safetensors makes its files private to their owner."""

from __future__ import annotations

import os
from pathlib import Path


def readable(path: Path) -> None:
    """Give a file the permissions that the user's umask gives any new file."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)
