"""Decode a stream of ids to text as it comes, without ever showing half a character.

A character may be several tokens: an emoji is four bytes, and a tokenizer may give each byte an id of its
own. Decoded too early, the first bytes show as U+FFFD and the right character never appears. So the decoder
holds back what later ids could still change:

- byte-level tokenizers: one U+FFFD at the end. Bytes that can never become a character are already settled,
  because UTF-8 decoding replaces each longest valid beginning by one U+FFFD.
- byte-fallback tokenizers (`<0xE4>`): the whole last run of byte tokens, because their decoder turns the run
  as one into text, or, where it is no UTF-8, each of its bytes into U+FFFD.

The deltas put together, with what `flush` returns, are exactly the decoding of all ids at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.text.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"


class StreamDecoder:
    """Text deltas for ids that come a few at a time; special tokens are left out, or shown where that is asked for.

    Only a window of the last ids is decoded at each push, so that a push costs the same at the end of a long
    answer. The window begins where a push ended on a whole character: the first token after the beginning of
    a window may lose its leading space, and such a window keeps at least one earlier token that bears text,
    as a beginning.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True) -> None:
        self._tokenizer, self._skip = tokenizer, skip_special_tokens
        self._window: list[int] = []
        self._emitted = 0  # characters of the window's text that were handed out
        self._boundary = 0  # ids of the window whose text was whole and handed out at the end of some push

    def push(self, ids: Sequence[int]) -> str:
        """Take the next `ids`; returns the text that is settled by now and was not returned before."""
        self._window.extend(ids)
        settled = len(self._window) - self._open_run()
        text = self._decode(self._window[:settled])
        end = len(text) - 1 if text.endswith(REPLACEMENT) else len(text)
        delta = text[self._emitted : end]
        self._emitted = max(self._emitted, end)
        if end == len(text) and settled == len(self._window):
            self._move_window()
        return delta

    def pending(self) -> str:
        """The text of a last run of byte tokens, as it is if the stream ends here; "" where it is no whole text.

        Only a byte-fallback tokenizer has such runs: `push` returns them once another token follows.
        """
        return self._decode(self._window)[self._emitted :].rstrip(REPLACEMENT) if self._open_run() else ""

    def flush(self) -> str:
        """The text still held back, as it is; call it after the last push. The decoder is then empty."""
        delta = self._decode(self._window)[self._emitted :]
        self._window, self._emitted, self._boundary = [], 0, 0
        return delta

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip)

    def _open_run(self) -> int:
        """How many ids at the end belong to a run of byte tokens that the next id may continue."""
        bytes_, special = self._tokenizer.byte_token_ids, self._tokenizer.special_token_ids
        if not bytes_:
            return 0
        run = 0
        # Special tokens within a run are left out before the decoder joins it, so they do not end it.
        for length, token in enumerate(reversed(self._window), start=1):
            if token in bytes_:
                run = length
            elif not self._skip or token not in special:
                break
        return run

    def _move_window(self) -> None:
        """Begin the window at the last boundary, and put the next boundary at its end."""
        tail = self._window[self._boundary :]
        text = self._decode(tail)
        if not text:
            return  # nothing that could stand as the beginning of a window
        self._window, self._emitted, self._boundary = tail, len(text), len(tail)
