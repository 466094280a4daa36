"""Every slot that templates may name, from the word lists, WordNet and the computed values together."""

from __future__ import annotations

import re
from collections.abc import Mapping

from examples.smollm2.prompt_kinds import passages, people, programs, snippets, things
from examples.smollm2.prompt_kinds.generated import NUMBERS, word_slots
from examples.smollm2.prompt_kinds.grammar import Source, with_article
from examples.smollm2.prompt_kinds.wordnet import Sense
from runtime.bundle.errors import UsageError

# Slots that are filled from one field of WordNet's nouns.
FIELDS = ("artifact", "state", "phenomenon", "process", "substance", "landform", "bodypart")
CONCRETE = {"animal", "artifact", "wnfood", "plant", "bodypart", "landform", "substance"}
COMMON, USED = 3, 20  # tagged at least so often, and met in so many glosses
# What makes an example a sentence: a pronoun first, or an article and a verb that shows itself as one.
SENTENCE = re.compile(
    r"(?:he|she|they|we|i|you|it|there|this|what|who|why|how|do|don't|can) .*|"
    r"(?:the|a|an|his|her|my|our|their) .* "
    r"(?:is|are|was|were|has|have|had|will|would|can|could|should|must|may|might|did|does|do)n?'?t? .*",
    re.IGNORECASE,
)


def all_slots(words: Mapping[str, list[Sense]]) -> dict[str, Source]:
    """The slots, given WordNet's words by part of speech. UsageError where so few words leave one empty."""
    lists: dict[str, tuple[str, ...]] = {**things.LISTS, **people.LISTS, **passages.LISTS}
    nouns = _common(words["noun"])
    for field in FIELDS:
        lists[field] = _words([sense for sense in nouns if sense.field == field])
    lists["noun"] = _words([sense for sense in nouns if sense.field in CONCRETE and " " not in sense.word])
    lists["anyverb"] = _words(_common(words["verb"]))
    lists["anyadj"] = _words(_common(words["adj"]))
    lists["anyword"] = lists["anyverb"] + lists["anyadj"] + _words(nouns)
    senses = [sense for part in words.values() for sense in part]
    lists["gloss"] = tuple(
        dict.fromkeys(s.gloss for s in nouns if 4 <= len(s.gloss.split()) <= 16 and not set(s.gloss) & set("[]{}()`;"))
    )
    lists["fact"] = tuple(
        f"{with_article(sense.word).capitalize()} is {sense.gloss.removesuffix('.')}."
        for sense in nouns
        if sense.field in CONCRETE - {"substance", "wnfood"} and re.fullmatch(r"(a|an|the) [^][{}]*", sense.gloss)
    )
    lists["sentence"] = _sentences(senses)
    if empty := [name for name, texts in lists.items() if not texts]:
        raise UsageError(
            f"this WordNet has too few common words, none for {', '.join(empty)}",
            repair="pass the whole of WordNet 3.0 as --wordnet",
        )
    return {**lists, **programs.SLOTS, **snippets.SLOTS, **NUMBERS, **word_slots(lists)}


def _common(senses: list[Sense]) -> list[Sense]:
    return [sense for sense in senses if sense.count >= COMMON and sense.uses >= USED]


def _words(senses: list[Sense]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sense.word for sense in senses))


def _sentences(senses: list[Sense]) -> tuple[str, ...]:
    """WordNet's examples that are whole sentences by the look of it, with a capital letter and a full stop."""
    found = []
    for sense in senses:
        for example in sense.examples:
            if SENTENCE.fullmatch(example) and 6 <= len(example.split()) <= 16 and not set(example) & set("[]{}()`;-"):
                found.append(example[0].upper() + example[1:] + ("" if example[-1] in ".?!" else "."))
    return tuple(dict.fromkeys(found))
