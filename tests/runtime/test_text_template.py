"""Chat templates render as Hugging Face renders them, and cannot leave their sandbox."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from runtime.bundle.errors import IntegrityError, UsageError
from runtime.text import ChatTemplate

USER = {"role": "user", "content": "Why is the sky blue?"}
SMOLLM2 = """\
{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""
ALTERNATING = """\
{{ bos_token }}
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate user/assistant') }}
    {%- endif %}
    {%- if loop.index0 > 3 %}{% break %}{% endif %}
    {% if message.role == 'assistant' %}
    {% generation %}
    {{ message.content | trim }}
    {% endgeneration %}
    {% else %}
[INST] {{ message | tojson }} [/INST]
    {% endif %}
{% endfor %}
"""


def render(template: str, *messages: object, **kwargs: bool) -> str:
    return ChatTemplate(template, {"bos_token": "<s>"}).render(list(messages), **kwargs)  # type: ignore[arg-type]


def test_smollm2_adds_its_system_message_and_the_beginning_of_the_answer() -> None:
    assert render(SMOLLM2, USER) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_without_generation_prompt_the_text_ends_with_the_last_message() -> None:
    assert render(SMOLLM2, USER, add_generation_prompt=False).endswith("Why is the sky blue?<|im_end|>\n")


@pytest.mark.parametrize("template", [SMOLLM2, ALTERNATING])
@pytest.mark.parametrize("turns", [1, 2, 3, 4, 5, 6])
def test_templates_render_as_transformers_renders_them(template: str, turns: int) -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    messages = [{"role": "assistant" if turn % 2 else "user", "content": f" turn <{turn}> é "} for turn in range(turns)]
    rendered, _ = utils.render_jinja_template(
        conversations=[messages], chat_template=template, add_generation_prompt=True, bos_token="<s>"
    )
    assert [render(template, *messages)] == rendered


def test_block_lines_leave_no_blank_lines() -> None:
    assert render("{% if true %}\n  {% set x = 1 %}\nyes\n{% endif %}\n") == "yes\n"


def test_tojson_keeps_html_and_unicode_as_they_are() -> None:
    assert render("{{ messages[0] | tojson(indent=1) }}", {"b": "<é>"}) == '{\n "b": "<é>"\n}'


def test_strftime_now_gives_the_date() -> None:
    year = render("{{ strftime_now('%Y') }}")
    assert re.fullmatch(r"\d{4}", year)
    assert abs(int(year) - datetime.now().year) <= 1


def test_a_refusal_of_the_template_is_the_users_to_mend() -> None:
    with pytest.raises(UsageError) as caught:
        render(ALTERNATING, USER, USER)
    assert caught.value.sentence() == (
        "The chat template refuses these messages: found roles must alternate user/assistant."
    )


ESCAPES = {
    "object tree": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "function globals": "{{ raise_exception.__globals__['json'] }}",
    "helper globals": "{{ strftime_now.__globals__.__builtins__ }}",
    "through attr": "{{ (messages|attr('__class__')).__base__ }}",
    "through format": "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "cycler": "{{ cycler.__init__.__globals__.os.system('true') }}",
}
MUTATIONS = {
    "append": "{{ messages.append(1) }}",
    "clear": "{{ messages[0].clear() }}",
    "update": "{% set _ = messages[0].update({'content': 'x'}) %}",
}


@pytest.mark.parametrize("template", [*ESCAPES.values(), *MUTATIONS.values()], ids=[*ESCAPES, *MUTATIONS])
def test_a_template_that_escapes_or_mutates_is_an_integrity_error(template: str) -> None:
    with pytest.raises(IntegrityError, match=r"^The chat template does what a template may not: ") as caught:
        render(template, USER)
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    "template", ["{{ dict.update(messages[0], {'content': 'x'}) }}", "{{ dict.__base__.__subclasses__() }}"]
)
def test_the_dict_function_does_not_hand_out_the_dict_type(template: str) -> None:
    message = dict(USER)
    with pytest.raises((UsageError, IntegrityError)):
        render(template, message)
    assert message == USER
    assert render("{{ dict(a=1) }}") == "{'a': 1}"


def test_an_endless_range_is_refused() -> None:
    with pytest.raises(UsageError, match="Range too big"):
        render("{% for i in range(999999999) %}{% endfor %}", USER)


@pytest.mark.parametrize("template", ["{{ messages[0].content + 1 }}", "{{ nothing.at.all }}", "{{ 1 / 0 }}"])
def test_a_template_that_fails_gives_one_sentence(template: str) -> None:
    with pytest.raises(UsageError, match=r"^The chat template fails on these messages: found \w+, .*\.$"):
        render(template, USER)


@pytest.mark.parametrize("template", ["{% if %}", "{{ ", "{% include 'x' %}{% endfor %}", "{{ x | nothing }}"])
def test_a_text_that_is_no_template_is_an_integrity_error(template: str) -> None:
    with pytest.raises(IntegrityError, match=r"^The chat template does not parse"):
        ChatTemplate(template, {})


def test_no_other_file_can_be_included() -> None:
    with pytest.raises((UsageError, IntegrityError)):
        render("{% include 'tokenizer.json' %}", USER)
