"""One answer as it grows: the engine's outputs in, text and log probabilities out.

What ends a request is in its ids and, but for stop strings that are asked for, not in its text.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.request import FinishReason, RequestOutput, StepOutput
from runtime.sampling.params import SamplingParams
from runtime.text import Tokenizer
from runtime.text.stop import StopStrings


class Choice:
    """The text of one request; used for a stream (`push`) or for the whole (`text_of`), not for both.

    Args:
        tokenizer, sampling: as the engine has them, so that both find the same stop string.
    """

    def __init__(self, tokenizer: Tokenizer, sampling: SamplingParams) -> None:
        self._include = sampling.include_stop_str_in_output
        self._text = StopStrings(tokenizer, sampling.stop, self._include, sampling.min_tokens)

    def push(self, steps: Sequence[StepOutput]) -> str:
        """The text that `steps` settle: whole characters, and no beginning of a stop string but after the last."""
        last = steps[-1]
        ids = [token for step in steps for token in step.token_ids]
        return self._take(ids, last.finish_reason, last.stop_reason)

    def text_of(self, output: RequestOutput) -> str:
        """The text of a finished request."""
        return self._take(output.token_ids, output.finish_reason, output.stop_reason)

    def _take(self, ids: Sequence[int], finish: FinishReason | None, reason: int | str | None) -> str:
        by_string = isinstance(reason, str)
        if finish == "stop" and not by_string and not (self._include and reason is not None):
            ids = ids[:-1]
        shown, _ = self._text.push(ids)
        return shown if finish is None or by_string else shown + self._text.flush()
