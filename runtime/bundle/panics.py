"""What the tokenizers library raises, as exceptions that `except Exception` catches.

A panic of its Rust code arrives as an exception that derives from BaseException alone: it would pass by everything that
keeps one request's failure from the others'. Files that open without complaint panic, only when a text is encoded or
decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class LibraryError(ValueError):
    """The library cannot do what a tokenizer's file says, in its own words."""


def asked(call: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> _T:
    """What `call`, of the library, returns.

    Raises:
        LibraryError: it panicked, or raised a bare Exception, which it does for every defect of a file.
    """
    try:
        return call(*args, **options)
    except BaseException as error:
        # The class of a panic has no module that could be imported
        if type(error) is Exception or type(error).__name__ == "PanicException":
            raise LibraryError(str(error)) from error
        raise
