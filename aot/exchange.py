"""Two folders exchanged in one step, where the kernel can: at either path there is always the old or the new one."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
# No such call, or a file system that has none: NFS and overlays of some kernels say EINVAL, sandboxes EPERM
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP, errno.ENOENT)


def exchange(first: Path, second: Path) -> bool:
    """Give each of two paths of one file system what is at the other; False, and nothing done, where that cannot be.

    Raises:
        OSError: it could be done here, and failed.
    """
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # a libc without it
        return False
    paths = [os.fsencode(path.absolute()) for path in (first, second)]
    if rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], ctypes.c_uint(_RENAME_EXCHANGE)) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(second))
