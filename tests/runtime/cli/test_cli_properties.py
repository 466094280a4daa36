"""Properties: the parser of prompt lines, and streamed text against the text of `--json`."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.answer import answer_text
from runtime.bundle.errors import UsageError
from runtime.output import Out, Streamer
from runtime.prompts import KEYS, Prompt, parse_line
from runtime.request import RequestOutput, SpecDecodeStats, StepOutput, Timing
from runtime.sampling.params import GREEDY, SamplingParams
from runtime.text import Tokenizer

FORMS = st.one_of(
    st.fixed_dictionaries({"prompt": st.text()}),
    st.fixed_dictionaries({"prompt_token_ids": st.lists(st.integers(), min_size=1)}),
    st.fixed_dictionaries(
        {"messages": st.lists(st.fixed_dictionaries({"role": st.text(), "content": st.text()}), min_size=1, max_size=3)}
    ),
)
OPTIONAL = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text() | st.integers(),
        "kind": st.text(),
        "max_tokens": st.integers(min_value=1),
        "ignore_eos": st.booleans(),
    },
)
SAMPLING = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 2),
        "seed": st.integers(),
        "stop": st.sampled_from(["a", ["b", "c"]]),
        "logit_bias": st.dictionaries(st.integers(0, 99).map(str), st.floats(-1, 1)),
    },
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
)


@settings(deadline=None)
@given(form=FORMS, optional=OPTIONAL, sampling=SAMPLING)
def test_every_line_of_a_known_form_is_taken_whole(
    form: dict[str, Any], optional: dict[str, Any], sampling: dict[str, Any]
) -> None:
    prompt = parse_line(json.dumps(form | optional | sampling), "here")
    content = next(iter(form.values()))
    assert prompt == Prompt(
        "here",
        tuple(content) if isinstance(content, list) else content,
        optional.get("id"),
        optional.get("max_tokens"),
        optional.get("kind"),
        optional.get("ignore_eos"),
        sampling,
    )


@settings(deadline=None)
@given(line=st.text() | JSON.map(json.dumps))
def test_any_other_line_is_refused_by_its_name(line: str) -> None:
    problem: UsageError | None = None
    try:
        prompt = parse_line(line, "prompts.jsonl line 3")
    except UsageError as error:
        problem = error
    if problem is None:
        assert prompt.content in [
            tuple(value) if isinstance(value, list) else value for value in json.loads(line).values()
        ]
    else:
        assert problem.what == "prompts.jsonl line 3 is not a prompt"


# How an answer can end: reason, what ended it, and the request's sampling parameters
ENDS = [
    ("length", None, GREEDY),
    ("stop", None, GREEDY),
    ("stop", 98, SamplingParams(0.0, stop_token_ids=(98,))),
    ("stop", 98, SamplingParams(0.0, stop_token_ids=(98,), include_stop_str_in_output=True)),
    ("stop", "ab", SamplingParams(0.0, stop=("ab", "ba"))),
    ("stop", "ab", SamplingParams(0.0, stop=("ab", "ba"), include_stop_str_in_output=True)),
    ("length", None, SamplingParams(0.0, stop=("ab", "ba"), min_tokens=3)),
]
TOKENS = st.integers(0, 256) | st.sampled_from(list(b"ab"))


@given(steps=st.lists(st.lists(TOKENS, min_size=1, max_size=4), min_size=1), end=st.sampled_from(ENDS))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_streamed_text_is_the_text_of_json(steps: list[list[int]], end: Any, tokenizer: Tokenizer) -> None:
    reason, stop_reason, sampling = end
    ids = [token for step in steps for token in step]
    output = RequestOutput("0", (1,), tuple(ids), reason, Timing(), SpecDecodeStats(), stop_reason=stop_reason)
    stream = io.StringIO(newline="")
    streamer = Streamer(Out(stream), tokenizer, sampling)
    for step in steps[:-1]:
        streamer.push(StepOutput("0", tuple(step), None))
    streamer.push(StepOutput("0", tuple(steps[-1]), reason, stop_reason=stop_reason))
    streamer.finish()
    text = answer_text(output, tokenizer, sampling)
    assert text is not None
    assert streamer.text == text
    assert stream.getvalue() == (text if text.endswith("\n") else text + "\n")


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_the_end_of_sequence_is_in_no_text(tokenizer: Tokenizer, reason: Any) -> None:
    output = RequestOutput("0", (1,), (*b"ab", 256), reason, Timing(), SpecDecodeStats())
    assert answer_text(output, tokenizer) == "ab"


@pytest.mark.parametrize(
    ("ids", "stop_reason", "include", "text"),
    [
        (b"abc", 99, False, "ab"),
        (b"abc", 99, True, "abc"),
        (b"abcd", "bcd", False, "a"),
        (b"abcd", "bcd", True, "abcd"),
        (b"abc", None, False, "ab"),  # the model's own end of sequence
        (b"abc", None, True, "ab"),
    ],
)
def test_the_text_is_cut_by_what_ended_it(
    tokenizer: Tokenizer, ids: bytes, stop_reason: int | str | None, include: bool, text: str
) -> None:
    output = RequestOutput("0", (1,), tuple(ids), "stop", Timing(), SpecDecodeStats(), stop_reason=stop_reason)
    stop = (stop_reason,) if isinstance(stop_reason, str) else ()
    assert answer_text(output, tokenizer, SamplingParams(0.0, stop=stop, include_stop_str_in_output=include)) == text
