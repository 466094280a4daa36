"""Slots whose values are computed: sums, number lists, sequences, word lists, CSV and JSON, scrambled words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random

from examples.smollm2.prompt_kinds.grammar import Source, Writer


def sum_of_numbers(rng: Random) -> str:
    """An arithmetic expression such as "12 × (3 + 40)"."""
    a, b, c = rng.randint(2, rng.choice((12, 99, 999))), rng.randint(2, rng.choice((12, 99))), rng.randint(2, 20)
    times = rng.choice(("*", "×", "x", "times"))
    return rng.choice((
        f"{a} + {b}", f"{a} - {b}", f"{a} {times} {b}", f"{a * b} / {b}", f"{a} + {b} {times} {c}", 
        f"({a} + {b}) {times} {c}",
        f"{a} plus {b}", f"{a} minus {b}", f"{a * b} divided by {b}", f"{c}²", f"the square root of {c * c}",
        f"{a}.{c} + {b}.{a % 10}", f"1/{b} + 1/{c}", f"{a} + {b} + {c}", f"{c}^{a % 3 + 2}", f"{a} - {b} + {c}",
    ))  # fmt: skip


def number(rng: Random) -> str:
    return rng.choice((f"{rng.uniform(1, 999):.3f}", str(rng.randint(1000, 999999)), f"{rng.uniform(0, 1):.5f}"))


def number_list(rng: Random) -> str:
    """Four to nine numbers, some of them twice, as a plain or a bracketed list."""
    numbers = [rng.randint(1, rng.choice((20, 100, 1000))) for _ in range(rng.randint(4, 9))]
    text = ", ".join(map(str, numbers))
    return f"[{text}]" if rng.random() < 0.4 else text


def sequence(rng: Random) -> str:
    """The first terms of an arithmetic, geometric or other simple sequence."""
    start, step, size = rng.randint(1, 30), rng.randint(2, 12), rng.randint(4, 6)
    terms = rng.choice((
        [start + step * i for i in range(size)],
        [start * step + 60 - step * i for i in range(size)],
        [(start % 6 + 1) * (step % 3 + 2) ** i for i in range(size)],
        [(start + i) ** 2 for i in range(size)],
        [start + i * (i + 1) // 2 for i in range(size)],
        [start + step * (i // 2) + i % 2 for i in range(size)],
    ))  # fmt: skip
    return ", ".join(map(str, terms)) + rng.choice((", ...", ", ?", ", __", ""))


def binary(rng: Random) -> str:
    return rng.choice(
        (f"{rng.randint(5, 255):b} in binary", f"0x{rng.randint(16, 4095):x}", f"0b{rng.randint(5, 127):b}")
    )


def letter(rng: Random) -> str:
    return rng.choice("ABCDEFGHILMNOPRSTUW")


def word_slots(phrases: Mapping[str, tuple[str, ...]]) -> dict[str, Source]:
    """Slots that play with other slots' values; `phrases` holds the lists they draw from."""

    def several(rng: Random, low: int, high: int, *names: str) -> list[str]:
        return [Writer(phrases, rng).write("{" + rng.choice(names) + "}") for _ in range(rng.randint(low, high))]

    def mixed(rng: Random) -> str:
        return ", ".join(several(rng, 4, 8, "animals", "food", "object", "noun", "color"))

    def with_duplicates(rng: Random) -> str:
        words = several(rng, 3, 5, "animals", "food", "name")
        words += rng.sample(words, 2)
        rng.shuffle(words)
        return ", ".join(words)

    def scrambled(rng: Random) -> str:
        letters = list(rng.choice(phrases["noun"]).replace(" ", ""))
        rng.shuffle(letters)
        return "".join(letters)

    def misspelt(rng: Random) -> str:
        word = rng.choice(phrases["noun"])
        at = rng.randrange(1, len(word) - 1)
        return rng.choice(
            (
                word[:at] + word[at + 1 :],
                word[:at] + word[at] + word[at:],
                word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            )
        )

    def shuffled(rng: Random) -> str:
        words = rng.choice(phrases["sentence"]).rstrip(".").split()
        rng.shuffle(words)
        return " / ".join(words)

    def gloss_choices(rng: Random) -> str:
        return "\n".join(
            f"{label}) {gloss}" for label, gloss in zip("ABCD", rng.sample(phrases["gloss"], 3), strict=False)
        )

    def people(rng: Random) -> list[dict[str, object]]:
        return [
            {"name": rng.choice(phrases["name"]), "age": rng.randint(18, 80), "city": rng.choice(phrases["city"])}
            for _ in range(rng.randint(2, 5))
        ]

    def goods(rng: Random) -> list[dict[str, object]]:
        return [
            {"product": rng.choice(phrases["object"]), "price": rng.randint(3, 200), "stock": rng.randint(0, 90)}
            for _ in range(rng.randint(2, 5))
        ]

    def csv_data(rng: Random) -> str:
        rows = rng.choice((people, goods))(rng)
        separator = rng.choice((",", ",", ";", " | "))
        return "\n".join(separator.join(map(str, row)) for row in [list(rows[0]), *(row.values() for row in rows)])

    def json_data(rng: Random) -> str:
        rows = rng.choice((people, goods))(rng)
        return json.dumps(rows[0] if rng.random() < 0.5 else rows, indent=rng.choice((None, 2)), ensure_ascii=False)

    return {
        "mixed": mixed,
        "withduplicates": with_duplicates,
        "scrambled": scrambled,
        "misspelt": misspelt,
        "shuffled": shuffled,
        "glosschoices": gloss_choices,
        "csvdata": csv_data,
        "jsondata": json_data,
        "upnoun": lambda rng: rng.choice(phrases["noun"]).upper(),
        "upname": lambda rng: rng.choice(phrases["name"]).upper(),
    }


NUMBERS: dict[str, Source] = {
    # Characters that mean something in templates.
    "openbrace": lambda rng: "{",
    "closebrace": lambda rng: "}",
    "openbracket": lambda rng: "[",
    "closebracket": lambda rng: "]",
    "square": lambda rng: str(rng.randint(2, 40) ** 2),
    "sum": sum_of_numbers,
    "number": number,
    "numberlist": number_list,
    "sequence": sequence,
    "binary": binary,
    "letter": letter,
}
