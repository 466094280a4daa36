"""CORS: which web pages may use this server from a browser; by default none.

A browser asks before a page's request (a preflight, OPTIONS), and shows the page no answer that does not allow it. The
options have vLLM's names and forms.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from runtime.bundle.errors import UsageError


@dataclass(frozen=True)
class Cors:
    """What is allowed; "*" in a list is all.

    Attributes:
        origins: of pages, like "https://example.org"; without any a browser lets no page use the server.
        credentials: whether a page may send cookies and the like.
    """

    origins: tuple[str, ...] = ()
    methods: tuple[str, ...] = ("*",)
    headers: tuple[str, ...] = ("*",)
    credentials: bool = False

    def around(self, app: ASGIApp) -> ASGIApp:
        """`app` for browsers: preflights are answered, other answers say whom they are for."""
        if not self.origins:
            return app
        return CORSMiddleware(
            app,
            allow_origins=self.origins,
            allow_methods=self.methods,
            allow_headers=self.headers,
            allow_credentials=self.credentials,
            expose_headers=("x-request-id", "retry-after", "x-should-retry"),
        )


def read_list(option: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """The items of an option that is given once for each, or as a JSON list, vLLM's form.

    Raises:
        UsageError: an item is empty or cannot stand in a header.
    """
    items: list[object] = []
    for value in values:
        given: object = value
        if value.lstrip().startswith("["):
            try:
                given = json.loads(value)
            except (ValueError, RecursionError):
                raise _wrong(option, value) from None
        items += given if isinstance(given, list) else [given]
    for item in items:
        if not isinstance(item, str) or not item.isascii() or not item.isprintable() or not item or " " in item:
            raise _wrong(option, str(item))
    return tuple(str(item) for item in items)


def _wrong(option: str, found: str) -> UsageError:
    return UsageError(
        f"{option} cannot be used",
        expected='"*", a name, or a JSON list of names like ["https://example.org"]',
        found=repr(found) if len(found) <= 80 else repr(found[:79] + "\u2026"),
        repair=f"correct {option}, or leave it out",
    )
