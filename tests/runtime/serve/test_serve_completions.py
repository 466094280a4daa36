"""/v1/completions by the openai client: texts, ids, streams, endings, log probabilities."""

from __future__ import annotations

import openai
from tests.runtime.loop.rig import Rig
from tests.runtime.serve.conftest import TOKENIZER, MODEL, Running


def test_an_answer_is_the_text_of_plain_decoding(client: openai.OpenAI, rig: Rig) -> None:
    prompt = "the cat and the hat"
    ids = TOKENIZER.encode(prompt)
    answer = client.completions.create(model=MODEL, prompt=prompt, max_tokens=20, temperature=0)
    print(answer)
    plain = rig.plain(ids, 20)
    assert answer.choices[0].text == TOKENIZER.decode(plain)
