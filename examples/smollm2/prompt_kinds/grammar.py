"""The template language in which every kind of prompt is written: choices, slots and turns.

    [Explain|Tell me] what {a animal} eats.     "[x|y]" takes one; "[x|]" takes x or nothing; they nest
    {city} or {city2}                           one value for each name; a digit asks for another value
    {a tool} {s tool} {cap s tool}              with its article, in the plural, with a capital letter
    {topic} {is topic} {do topic} {has topic}   is or are, does or do, has or have, as the value asks for
    {bare sentence}                             without the full stop
    {5-12} {a 5-12} {5-12b}                     a number in this range; a letter asks for another one
    Be brief. ::: Hello ;; Thanks!              system message ::: first turn ;; second turn

A slot's value comes from a tuple of phrases, which may be templates themselves, or from a function of the random
generator; what a function returns is inserted as it is, brackets and all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

Source = tuple[str, ...] | Callable[[Random], str]

CHOICE = re.compile(r"\[([^\[\]]*)\]")
SLOT = re.compile(r"\{((?:(?:a|s|cap|bare|is|do|has) )*)([^{}\s\"]+)\}")
RANGE = re.compile(r"(\d+)-(\d+)[a-z]?")
HEADING = re.compile(r"= (\S+)(?: tail=(\S+))?(?: follow=(\S+))?")
# Words whose first sound is not what their first letter says, and numbers read with a vowel first.
AN = re.compile(r"[aeiou]|hour|honest|hono|heir|8|11\b|18\b|r\b|sql\b|mri\b|x-ray")
A = re.compile(r"uni(?!n|m)|us[eu]|euro?|one|once|ukulele|ut[eio]")
WRONG_ARTICLE = re.compile(r"\b([Aa]) (?=([A-Za-z]{3,}))")
NOT_A_NOUN_PHRASE = {"and", "are", "into", "over", "out", "off", "under", "until", "also", "equals", "has"}
IRREGULAR = {
    "man": "men", "woman": "women", "child": "children", "person": "people", "foot": "feet", "tooth": "teeth",
    "mouse": "mice", "goose": "geese", "knife": "knives", "wolf": "wolves", "leaf": "leaves", "shelf": "shelves",
    "bookshelf": "bookshelves", "life": "lives", "half": "halves", "thief": "thieves", "loaf": "loaves", "ox": "oxen",
    "sheep": "sheep", "deer": "deer", "fish": "fish", "goldfish": "goldfish", "jellyfish": "jellyfish",
    "starfish": "starfish", "moose": "moose", "series": "series", "bison": "bison", "policeman": "policemen",
    "fisherman": "fishermen", "chairman": "chairmen", "gentleman": "gentlemen", "handkerchief": "handkerchiefs",
    "wife": "wives", "calf": "calves", "buffalo": "buffaloes", "tomato": "tomatoes", "potato": "potatoes",
    "hero": "heroes", "echo": "echoes", "aircraft": "aircraft", "furniture": "furniture", "equipment": "equipment",
}  # fmt: skip
SINGULAR_IN_S = re.compile(r"(ss|us|is|ics|economics|news|gas|lens|series|chess|tennis|Netherlands|games|diabetes)$")


@dataclass(frozen=True)
class Kind:
    """One kind of task: its templates, and the groups that may add a tail to a request or turns after it."""

    name: str
    templates: tuple[str, ...]
    tail: str = ""
    follow: str = ""


def lines(text: str) -> list[str]:
    """The lines of `text` that are not empty; an indented one continues the line before it."""
    return re.sub(r"\n[ \t]+(?=\S)", " ", text).strip().splitlines()


def kinds(text: str) -> tuple[Kind, ...]:
    """The kinds in `text`: a line `= NAME [tail=GROUP] [follow=GROUP]`, then a template a line, `\\n` for a newline.

    Raises ValueError for a line that is neither, a name used twice, or a kind without templates.
    """
    found: dict[str, tuple[str, str, list[str]]] = {}
    templates: list[str] | None = None
    for line in lines(text):
        if heading := HEADING.fullmatch(line):
            if heading[1] in found:
                raise ValueError(f"kind {heading[1]} is written twice")
            templates = []
            found[heading[1]] = (heading[2] or "", heading[3] or "", templates)
        elif line.startswith("= ") or templates is None:
            raise ValueError(f"not a heading: {line}")
        else:
            templates.append(line.replace("\\n", "\n"))
    if empty := [name for name, (_, _, texts) in found.items() if not texts]:
        raise ValueError(f"kinds without templates: {', '.join(empty)}")
    return tuple(Kind(name, tuple(texts), tail, follow) for name, (tail, follow, texts) in found.items())


def phrases(text: str) -> tuple[str, ...]:
    """The phrases of a list that is written with "; " between them, over as many lines as it takes."""
    return tuple(phrase for part in text.replace("\n", " ").split(";") if (phrase := " ".join(part.split())))


def with_article(phrase: str) -> str:
    """`phrase` after "a" or "an", by the sound it begins with."""
    low = phrase.lower()
    return ("an " if AN.match(low) and not A.match(low) else "a ") + phrase


def plural(phrase: str) -> str:
    """The plural of an English noun phrase: of its last word, or of the one before "of" or "in"."""
    for link in (" of ", " in ", " who ", " with "):
        if link in phrase:
            head, _, rest = phrase.partition(link)
            return plural(head) + link + rest
    before, space, word = phrase.rpartition(" ")
    if word.lower() in IRREGULAR:
        return before + space + IRREGULAR[word.lower()]
    if phrase.endswith(("s", "x", "z", "ch", "sh")):
        return phrase + "es"
    if phrase.endswith("y") and phrase[-2:-1] not in set("aeiou"):
        return phrase[:-1] + "ies"
    return phrase + "s"


def is_plural(phrase: str) -> bool:
    """Whether a verb after `phrase` stands in the plural."""
    head = phrase.partition(" of ")[0].partition(" on ")[0].partition(" for ")[0]
    return " and " in phrase or (head.endswith("s") and not SINGULAR_IN_S.search(head)) or head in ("police", "people")


def mend_articles(text: str) -> str:
    """`text` with "a" made "an" where a word follows that begins with a vowel's sound."""
    return WRONG_ARTICLE.sub(
        lambda found: (
            found[0]
            if found[2].lower() in NOT_A_NOUN_PHRASE or found[2].isupper() or with_article(found[2]).startswith("a ")
            else found[1] + "n "
        ),
        text,
    )


def _verb(single: str, many: str) -> Callable[[str], str]:
    return lambda phrase: many if is_plural(phrase) else single


FORMS: dict[str, Callable[[str], str]] = {
    "a": with_article,
    "s": plural,
    "cap": lambda value: value[:1].upper() + value[1:],
    "bare": lambda value: value.rstrip(".!?"),
    "is": _verb("is", "are"),
    "do": _verb("does", "do"),
    "has": _verb("has", "have"),
}


class Writer:
    """Writes out one template. A slot that occurs twice gets the same value twice, so one writer serves one prompt."""

    def __init__(self, slots: Mapping[str, Source], rng: Random) -> None:
        self.slots, self.rng = slots, rng
        self.values: dict[str, str] = {}

    def write(self, template: str) -> str:
        """`template` with every choice taken and every slot filled. KeyError names a slot that nobody supplies."""
        return SLOT.sub(self._fill, self.choose(template))

    def choose(self, template: str) -> str:
        """`template` with every choice taken, the innermost first. ValueError where brackets have no partner."""
        while "[" in template:
            taken = CHOICE.sub(lambda found: self.rng.choice(found[1].split("|")), template)
            if taken == template:
                raise ValueError(f"unbalanced brackets: {template}")
            template = taken
        return template

    def _fill(self, slot: re.Match[str]) -> str:
        forms, name = slot[1].split(), slot[2]
        if name not in self.values:
            self.values[name] = self._value(name)
        value = self.values[name]
        for form in reversed(forms):
            value = FORMS[form](value)
        return value

    def _value(self, name: str) -> str:
        if limits := RANGE.fullmatch(name):
            return str(self.rng.randint(int(limits[1]), int(limits[2])))
        base = name.rstrip("0123456789")
        source = self.slots[base]
        taken = {value for key, value in self.values.items() if key.rstrip("0123456789") == base}
        for _ in range(20):
            value = source(self.rng) if callable(source) else self._phrase(source)
            if value not in taken:
                break
        return value

    def _phrase(self, source: tuple[str, ...]) -> str:
        phrase = self.rng.choice(source)
        return self.write(phrase) if "{" in phrase or "[" in phrase else phrase
