"""The text of an answer: of the tokens that the engine commits, what a reader sees.

ended by                          text
the model's end of sequence       without that id
one of stop_token_ids             without that id, unless include_stop_str_in_output
a stop string                     up to it, or with it where include_stop_str_in_output
max_tokens, max_model_len         all of it

Special tokens within it are left out, unless skip_special_tokens is false.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.request import RequestOutput, StepOutput
from runtime.sampling.params import GREEDY, SamplingParams
from runtime.text import StopStrings, Tokenizer


class AnswerText:
    """The text of one request while its steps come; what may yet become a stop string is held back."""

    def __init__(self, tokenizer: Tokenizer, sampling: SamplingParams = GREEDY) -> None:
        include = sampling.include_stop_str_in_output
        self._strings = StopStrings(
            tokenizer, sampling.stop, include, sampling.min_tokens, sampling.skip_special_tokens
        )
        self._include = include

    def push(self, output: StepOutput | RequestOutput) -> str:
        """The text that a step settles, or a finished request as a whole."""
        return self._strings.push(text_ids(output, include=self._include))[0]

    def flush(self, *, aborted: bool = False) -> str:
        """What is held back, after the last step; of an aborted request without half a character at its end."""
        return self._strings.flush(whole=aborted)


def text_ids(output: StepOutput | RequestOutput, *, include: bool = False) -> Sequence[int]:
    """The ids that make the text: all but an end-of-sequence or stop id that ended the request.

    Args:
        include: keep a stop id (include_stop_str_in_output).
    """
    by_eos = output.finish_reason == "stop" and output.stop_reason is None
    by_stop_id = isinstance(output.stop_reason, int) and not include
    return output.token_ids[:-1] if by_eos or by_stop_id else output.token_ids


def answer_text(output: RequestOutput, tokenizer: Tokenizer | None, sampling: SamplingParams = GREEDY) -> str | None:
    """The text of a finished request; None where the bundle has no tokenizer.

    Args:
        sampling: as in the request; its stop strings cut the text.
    """
    if tokenizer is None:
        return None
    text = AnswerText(tokenizer, sampling)
    return text.push(output) + text.flush()
