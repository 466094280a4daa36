"""Stop strings in a stream of ids: what may be shown, what is held back, and which stop string ended the text.

Which stop string wins depends on the text alone, never on how it was cut into tokens or pushes: the one whose last
character comes first; of those that end at the same character, the longest, so that as much as possible is cut.

A run of byte tokens (`<0x0A>`) is settled text only once another token follows, because one bad byte more would change
all of it (`runtime.text.stream`). It counts for stop strings at once, as what the text is if it ends there: else a
request with the stop string "\\n" would go on for one more token wherever a newline is a byte token.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.text.stream import StreamDecoder
from runtime.text.tokenizer import Tokenizer


class StopStrings:
    """Text deltas for ids that come a few at a time, up to the first stop string.

    A push costs in proportion to the characters that it brings and the number of stop strings, not to their length nor
    to that of the text.

    Args:
        stop: strings that end the text, none of them empty. Without any this is a `StreamDecoder`.
        include: end the text after the stop string and not before it; nothing has to be held back then.
        skip: a stop string that ends within the text of the first `skip` ids does not count (min_tokens). One that
            begins there and ends later does.
        skip_special_tokens: False for a text that shows special tokens; a stop string may then be one.

    Attributes:
        found: the stop string that ended the text, None as long as none did.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: tuple[str, ...] = (),
        include: bool = False,
        skip: int = 0,
        skip_special_tokens: bool = True,
    ) -> None:
        self._decoder = StreamDecoder(tokenizer, skip_special_tokens)
        self._patterns = [_Pattern(text) for text in sorted(set(stop), key=len, reverse=True)]
        self._include, self._skip = include, skip
        self._matched = [0] * len(self._patterns)  # of each pattern: how much of it the settled text ends with
        self._held = ""
        self._taken = 0
        self._exempt = 0  # characters after the settled text in which no stop string may end
        self.found: str | None = None

    def push(self, ids: Sequence[int]) -> tuple[str, str | None]:
        """Take the next `ids`.

        Returns the text that is settled by now, is no beginning of a stop string and was not returned before; and the
        stop string that ended the text, if one did. After it ids are ignored.
        """
        if not self._patterns:
            return self._decoder.push(ids), None
        shown = ""
        for token in ids:
            if self.found is not None:
                break
            shown += self._take(token)
        return shown, self.found

    def flush(self, *, whole: bool = False) -> str:
        """The text still held back, for a request that ended otherwise; call it after the last push.

        Args:
            whole: leave out a broken character at the end, which an answer that was cut short may have.
        """
        if self.found is not None:
            return ""
        rest, self._held = self._held + (self._decoder.pending() if whole else self._decoder.flush()), ""
        self._matched = [0] * len(self._patterns)
        return rest

    def _take(self, token: int) -> str:
        settled, pending = self._decoder.push([token]), self._decoder.pending()
        self._taken += 1
        if self._taken <= self._skip:
            self._exempt = len(settled) + len(pending)
        before, exempt = self._held + settled, self._exempt
        self._exempt = max(0, exempt - len(settled))
        if (end := self._scan(settled, self._matched, exempt)) is not None:
            return self._end(self._held + settled[:end])
        if pending and (end := self._scan(pending, list(self._matched), self._exempt)) is not None:
            return self._end(before + pending[:end])
        cut = len(before) - (0 if self._include else max(self._matched))
        self._held = before[cut:]
        return before[:cut]

    def _end(self, text: str) -> str:
        """The last text to be shown, of `text` up to the end of the stop string."""
        assert self.found is not None
        return text if self._include else text[: -len(self.found)]

    def _scan(self, text: str, matched: list[int], exempt: int) -> int | None:
        """Move `matched` over `text`; returns how much of it there is up to the end of a stop string, now `found`."""
        for end, character in enumerate(text, start=1):
            for index, pattern in enumerate(self._patterns):
                matched[index], complete = pattern.step(matched[index], character)
                if complete and end > exempt:
                    self.found = pattern.text
                    return end
        return None


class _Pattern:
    """One stop string, searched for a character at a time (Knuth, Morris and Pratt).

    Its state after a text is the length of its longest beginning, itself left out, with which the text ends.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        # shorter[n]: the longest beginning of `text`, below n, with which its first n characters end
        self._shorter = [0, 0]
        for character in text[1:]:
            self._shorter.append(self._longest(self._shorter[-1], character))

    def step(self, matched: int, character: str) -> tuple[int, bool]:
        """The state after one more character, and whether that character completes the stop string."""
        matched = self._longest(matched, character)
        complete = matched == len(self.text)
        return (self._shorter[matched] if complete else matched), complete

    def _longest(self, matched: int, character: str) -> int:
        while matched and self.text[matched] != character:
            matched = self._shorter[matched]
        return matched + (self.text[matched] == character)
