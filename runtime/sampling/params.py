"""What a request may ask of sampling, under the names of vLLM's SamplingParams, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.bundle.errors import UsageError

# Below this a request is greedy, as in vLLM: dividing by less overflows float32
GREEDY_BELOW = 1e-5
MOST_LOGPROBS = 20
# Each token is looked at once for each stop string and each bad word, in the thread that everybody waits for
MOST_STOPS, MOST_STOP_CHARACTERS = 256, 16384
MOST_BAD_WORDS, MOST_BAD_WORD_IDS = 2048, 16384
# JSON has no infinity; vLLM's stand-in for the logarithm of nothing
LEAST_LOGPROB = -9999.0


@dataclass(frozen=True)
class SamplingParams:
    """Sampling of one request. Defaults are vLLM's: temperature 1 and nothing cut off.

    Attributes:
        temperature: logits are divided by it; below 1e-5 the request is greedy.
        top_k: keep the k most probable tokens, and those as probable as the last of them; 0 or -1 keeps all.
        top_p: keep the fewest most probable tokens whose probabilities reach it, after top_k; in (0, 1].
        min_p: keep tokens at least this times as probable as the most probable one; in [0, 1].
        presence_penalty: subtracted from the logit of every token generated so far; in [-2, 2].
        frequency_penalty: subtracted once for each time that a token was generated; in [-2, 2].
        repetition_penalty: divides a positive logit and multiplies a negative one of every token in prompt or answer.
        logit_bias: added to the logits of these ids; each in [-100, 100].
        allowed_token_ids: only these ids may be chosen; None allows all.
        bad_words_token_ids: sequences that may not come about; the last id of each is banned after the ids before it.
        min_tokens: no end-of-sequence id, stop id or stop string ends the request before so many tokens.
        stop: strings that end the request; the text is cut before them.
        stop_token_ids: ids that end the request, beside the model's own.
        include_stop_str_in_output: leave the stop string in the text.
        skip_special_tokens: leave special tokens out of the text; where they are shown, a stop string may be one.
        seed: the same seed gives the same text; None draws one.
        logprobs: report each token's log probability and those of so many likeliest ones (0 to 20); of the logits as
            the model gave them, before everything above.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words_token_ids: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    seed: int | None = None
    logprobs: int | None = None

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is taken, and no random number is drawn."""
        return self.temperature < GREEDY_BELOW

    @property
    def penalised(self) -> bool:
        """Whether a row's logits depend on the tokens before it."""
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0)

    @property
    def processed(self) -> bool:
        """Whether logits are changed before a token is chosen, temperature aside."""
        return bool(
            self.penalised
            or self.logit_bias
            or self.allowed_token_ids is not None
            or self.bad_words_token_ids
            or self.min_tokens
        )

    @property
    def needs_logits(self) -> bool:
        """Whether a graph's own greedy choice is not enough for this request."""
        return not self.greedy or self.processed or self.logprobs is not None

    def check(self, what: str, vocab_size: int) -> None:
        """Raise for the first value that is out of range.

        Args:
            what: begins the error's sentence: "Request 7 cannot run".

        Raises:
            UsageError: names the parameter, its range and the value.
        """
        for name, wanted, fine in (
            ("temperature", "a number of at least 0", _finite(self.temperature) and self.temperature >= 0),
            ("top_k", "-1, 0 or a whole number of at least 1", self.top_k >= -1),
            ("top_p", "a number above 0 and at most 1", _finite(self.top_p) and 0 < self.top_p <= 1),
            ("min_p", "a number from 0 to 1", _finite(self.min_p) and 0 <= self.min_p <= 1),
            ("presence_penalty", "a number from -2 to 2", abs(self.presence_penalty) <= 2),
            ("frequency_penalty", "a number from -2 to 2", abs(self.frequency_penalty) <= 2),
            (
                "repetition_penalty",
                "a number above 0",
                _finite(self.repetition_penalty) and self.repetition_penalty > 0,
            ),
            ("min_tokens", "a whole number of at least 0", self.min_tokens >= 0),
            (
                "logprobs",
                f"a whole number from 0 to {MOST_LOGPROBS}",
                self.logprobs is None or 0 <= self.logprobs <= MOST_LOGPROBS,
            ),
            ("stop", "strings that are not empty", all(self.stop)),
            (
                "stop",
                f"at most {MOST_STOPS} strings of {MOST_STOP_CHARACTERS} characters together",
                len(self.stop) <= MOST_STOPS and sum(map(len, self.stop)) <= MOST_STOP_CHARACTERS,
            ),
            ("bad_words_token_ids", "lists of at least one id", all(self.bad_words_token_ids)),
            (
                "bad_words_token_ids",
                f"at most {MOST_BAD_WORDS} lists of {MOST_BAD_WORD_IDS} ids together",
                len(self.bad_words_token_ids) <= MOST_BAD_WORDS
                and sum(map(len, self.bad_words_token_ids)) <= MOST_BAD_WORD_IDS,
            ),
            (
                "allowed_token_ids",
                "at least one id",
                self.allowed_token_ids is None or bool(self.allowed_token_ids),
            ),
            (
                "logit_bias",
                "numbers from -100 to 100",
                all(_finite(bias) and abs(bias) <= 100 for bias in self.logit_bias.values()),
            ),
        ):
            if not fine:
                raise UsageError(
                    what,
                    expected=f"{name} to be {wanted}",
                    found=_brief(getattr(self, name)),
                    repair=f"correct {name}",
                )
        for name, ids in (
            ("logit_bias", tuple(self.logit_bias)),
            ("allowed_token_ids", self.allowed_token_ids or ()),
            ("bad_words_token_ids", tuple(token for word in self.bad_words_token_ids for token in word)),
            ("stop_token_ids", self.stop_token_ids),
        ):
            outside = next((token for token in ids if not 0 <= token < vocab_size), None)
            if outside is not None:
                raise UsageError(
                    what,
                    expected=f"{name} with ids from 0 to {vocab_size - 1}",
                    found=str(outside),
                    repair="use ids of this bundle's target model",
                )


def _finite(value: float) -> bool:
    return math.isfinite(value)


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


GREEDY = SamplingParams(temperature=0.0)


@dataclass(frozen=True)
class TokenLogprobs:
    """What the model thought of one generated token.

    Attributes:
        token_id, logprob: the token and the natural logarithm of its probability.
        rank: 1 for the most probable token of the vocabulary; ties share the better rank.
        top: (id, logprob) of the `SamplingParams.logprobs` likeliest tokens, likeliest first, ties by id.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]
