"""Properties: the parser of prompt lines, and streamed text against the text of `--json`."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.bundle.errors import UsageError
from runtime.output import Out, Streamer, answer_text
from runtime.prompts import KEYS, Prompt, parse_line
from runtime.request import RequestOutput, SpecDecodeStats, StepOutput, Timing
from runtime.text import Tokenizer

FORMS = st.one_of(
    st.fixed_dictionaries({"prompt": st.text()}),
    st.fixed_dictionaries({"prompt_token_ids": st.lists(st.integers(), min_size=1)}),
    st.fixed_dictionaries(
        {"messages": st.lists(st.fixed_dictionaries({"role": st.text(), "content": st.text()}), min_size=1, max_size=3)}
    ),
)
OPTIONAL = st.fixed_dictionaries(
    {}, optional={"id": st.text() | st.integers(), "kind": st.text(), "max_tokens": st.integers(min_value=1)}
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
)


@settings(deadline=None)
@given(form=FORMS, optional=OPTIONAL)
def test_every_line_of_a_known_form_is_taken_whole(form: dict[str, Any], optional: dict[str, Any]) -> None:
    prompt = parse_line(json.dumps(form | optional), "here")
    content = next(iter(form.values()))
    assert prompt == Prompt(
        "here",
        tuple(content) if isinstance(content, list) else content,
        optional.get("id"),
        optional.get("max_tokens"),
        optional.get("kind"),
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


@given(steps=st.lists(st.lists(st.integers(0, 256), min_size=1, max_size=4), min_size=1), stops=st.booleans())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_streamed_text_is_the_text_of_json(steps: list[list[int]], stops: bool, tokenizer: Tokenizer) -> None:
    reason = "stop" if stops else "length"
    ids = [token for step in steps for token in step]
    output = RequestOutput("0", (1,), tuple(ids), reason, Timing(), SpecDecodeStats())  # type: ignore[arg-type]
    stream = io.StringIO(newline="")
    streamer = Streamer(Out(stream), tokenizer, (256,))
    for step in steps:
        last = step is steps[-1]
        streamer.push(StepOutput("0", tuple(step), reason if last else None))  # type: ignore[arg-type]
    streamer.finish()
    text = answer_text(output, tokenizer, (256,))
    assert text is not None
    assert streamer.text == text
    assert stream.getvalue() == (text if text.endswith("\n") else text + "\n")


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_the_end_of_sequence_is_in_no_text(tokenizer: Tokenizer, reason: Any) -> None:
    output = RequestOutput("0", (1,), (*b"ab", 256), reason, Timing(), SpecDecodeStats())
    assert answer_text(output, tokenizer, (256,)) == "ab"
