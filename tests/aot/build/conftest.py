"""What of these tests is run by its name alone: builds with a real compiler that are interrupted, or made twice.

They take many minutes, and Ctrl-C does not reach what was started in the background.
"""

from __future__ import annotations

import sys

_BY_NAME = ("test_interrupted_build.py", "test_same_bytes.py")
collect_ignore = [name for name in _BY_NAME if not any(name in argument for argument in sys.argv)]
