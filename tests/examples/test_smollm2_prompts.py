"""The stream of training prompts: the same for the same seed, balanced, without repetitions; and reading WordNet."""

from __future__ import annotations

import io
import json
import tarfile
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from examples.smollm2 import prompts as module
from examples.smollm2.prompt_kinds import turns
from examples.smollm2.prompt_kinds.grammar import RANGE, SLOT, Kind
from examples.smollm2.prompt_kinds.slots import all_slots
from examples.smollm2.prompt_kinds.wordnet import FILES, Sense, read_wordnet
from examples.smollm2.prompts import KINDS, Prompt, main, prompts
from runtime.bundle.errors import UsageError

# (part of speech, lexicographer file, words): every synset gets a gloss and a sentence of its own.
SYNSETS = [
    ("noun", 6, ["lamp", "light"]), ("noun", 6, ["drum"]), ("noun", 5, ["heron"]), ("noun", 13, ["soup"]),
    ("noun", 6, ["kettle"]), ("noun", 26, ["peace"]), ("noun", 19, ["thunder"]), ("noun", 22, ["drying"]),
    ("noun", 27, ["chalk"]), ("noun", 17, ["cliff"]), ("noun", 8, ["elbow"]), ("verb", 38, ["wander"]),
    ("verb", 36, ["carve"]), ("adj", 0, ["plain"]), ("adj", 0, ["steep(a)"]), ("adj", 0, ["brittle"]),
]  # fmt: skip
NUMBERS = {"noun": 1, "verb": 2, "adj": 3}


@pytest.fixture(scope="module")
def wordnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A WordNet of a few common words and thirty that nobody uses, laid out as the Debian package installs it."""
    folder = tmp_path_factory.mktemp("wordnet") / "usr" / "share" / "wordnet"
    folder.mkdir(parents=True)
    lines: dict[str, list[str]] = {name: ["  1 A line of the licence"] for name in FILES if name.startswith("data")}
    counts = []
    for number, (part, field, words) in enumerate(SYNSETS):
        pairs = " ".join(f"{word} 0" for word in words)
        gloss = (
            f'a thing that is met in test number {number}; "the {number} of them were seen near the river yesterday"'
        )
        lines[f"data.{part}"].append(f"{number:08d} {field:02d} {part[0]} {len(words):02x} {pairs} 000 | {gloss}  ")
        counts += [f"{word.partition('(')[0]}%{NUMBERS[part]}:{field:02d}:00:: 1 9" for word in words]
    everyday = " ".join(word.partition("(")[0] for _, _, words in SYNSETS for word in words)
    for number in range(100, 130):
        lines["data.noun"].append(f"{number:08d} 06 n 01 gizmo{number} 0 000 | made of {everyday}  ")
    for name, text in lines.items():
        (folder / name).write_text("\n".join(text) + "\n", encoding="utf-8")
    (folder / "cntlist.rev").write_text("\n".join(sorted(counts)) + "\n", encoding="utf-8")
    return folder


def deb(path: Path, folder: Path) -> Path:
    """A Debian package with the files of `folder`: an ar archive of a version and a compressed tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        archive.add(folder, "./usr/share/wordnet")
    content = b"!<arch>\n"
    for name, data in ((b"debian-binary", b"2.0\n"), (b"control.tar.xz", b"odd"), (b"data.tar.xz", buffer.getvalue())):
        content += (
            b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name, 0, 0, 0, b"100644", len(data)) + data + b"\n" * (len(data) % 2)
        )
    path.write_bytes(content)
    return path


def take(wordnet: Path, seed: int, count: int, max_kinds: int | None = None) -> list[Prompt]:
    return list(islice(prompts(wordnet, seed, max_kinds), count))


def test_the_same_seed_gives_the_same_stream(wordnet: Path) -> None:
    assert take(wordnet, 7, 300) == take(wordnet, 7, 300)
    assert take(wordnet, 7, 300) != take(wordnet, 8, 300)


def test_no_prompt_occurs_twice(wordnet: Path) -> None:
    made = take(wordnet, 1, 20 * len(KINDS))
    assert len({(prompt.system, prompt.turns) for prompt in made}) == len(made)


def test_every_round_holds_every_kind_once_in_an_order_of_its_own(wordnet: Path) -> None:
    made = [prompt.kind for prompt in take(wordnet, 1, 2 * len(KINDS))]
    first, second = made[: len(KINDS)], made[len(KINDS) :]
    assert sorted(first) == sorted(second) == sorted(kind.name for kind in KINDS)
    assert first != second


def test_there_are_many_kinds_and_their_names_differ() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 80


def test_one_in_eight_has_several_turns_and_one_in_ten_a_system_message(wordnet: Path) -> None:
    made = take(wordnet, 3, 20 * len(KINDS))
    assert sum(len(prompt.turns) > 1 for prompt in made) / len(made) == pytest.approx(0.12, abs=0.02)
    assert sum(prompt.system is not None for prompt in made) / len(made) == pytest.approx(0.10, abs=0.02)
    assert max(len(prompt.turns) for prompt in made) == 4
    assert all(text.strip() for prompt in made for text in prompt.turns)


def test_every_template_names_slots_that_exist(wordnet: Path) -> None:
    slots = all_slots(read_wordnet(wordnet))
    templates = [text for kind in KINDS for text in kind.templates] + [*turns.SYSTEMS, *turns.PREFACES]
    templates += [text for group in (turns.TAILS, turns.FOLLOW_UPS) for texts in group.values() for text in texts]
    templates += [text for source in slots.values() if isinstance(source, tuple) for text in source]
    named = {name for text in templates for _, name in SLOT.findall(text) if not RANGE.fullmatch(name)}
    assert {name.rstrip("0123456789") for name in named} - set(slots) == set()


def test_every_kind_names_groups_of_tails_and_follow_ups_that_exist() -> None:
    assert {kind.tail for kind in KINDS} - {"none"} == set(turns.TAILS)
    assert {kind.follow for kind in KINDS} - {"none"} == set(turns.FOLLOW_UPS)


def test_max_kinds_keeps_so_many_kinds(wordnet: Path) -> None:
    counts = Counter(prompt.kind for prompt in take(wordnet, 1, 30, max_kinds=3))
    assert list(counts.values()) == [10, 10, 10]


def test_kinds_that_run_out_are_left_out_and_then_the_stream_says_so(
    wordnet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = Kind("small", ("[Hi|Hello]",)), Kind("large", ("{1-9}",))
    monkeypatch.setattr(module, "KINDS", (small, large))
    monkeypatch.setattr(module, "SYSTEM_RATE", 0.0)
    monkeypatch.setattr(module, "MANNERS_RATE", 0.0)
    monkeypatch.setattr(module, "TRIES", 500)
    stream = prompts(wordnet, 1, max_kinds=2)
    assert Counter(prompt.kind for prompt in islice(stream, 11)) == {"small": 2, "large": 9}
    with pytest.raises(UsageError, match="no more prompts: found 11 different ones"):
        next(stream)


def test_only_the_first_senses_of_words_that_were_counted_are_read(wordnet: Path) -> None:
    lamp = read_wordnet(wordnet)["noun"][7]
    assert lamp == Sense(
        word="lamp",
        field="artifact",
        gloss="a thing that is met in test number 0",
        examples=("the 0 of them were seen near the river yesterday",),
        count=9,
        uses=30,
    )


def test_a_package_and_any_folder_above_the_files_read_the_same(wordnet: Path, tmp_path: Path) -> None:
    words = read_wordnet(wordnet)
    assert read_wordnet(wordnet.parents[2]) == words
    assert read_wordnet(deb(tmp_path / "wordnet-base.deb", wordnet)) == words


def test_a_place_without_wordnet_is_refused_with_the_package_to_get(wordnet: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no WordNet at") as missing:
        read_wordnet(tmp_path / "nothing")
    assert "wordnet-base" in missing.value.repair
    with pytest.raises(UsageError, match=r"holds no WordNet: expected cntlist\.rev"):
        read_wordnet(tmp_path)
    (tmp_path / "text.deb").write_text("text")
    with pytest.raises(UsageError, match="does not begin as an ar archive"):
        read_wordnet(tmp_path / "text.deb")
    (tmp_path / "empty.deb").write_bytes(b"!<arch>\n")
    with pytest.raises(UsageError, match=r"expected a member data\.tar"):
        read_wordnet(tmp_path / "empty.deb")
    cut = deb(tmp_path / "cut.deb", wordnet).read_bytes()[:-300]
    (tmp_path / "cut.deb").write_bytes(cut)
    with pytest.raises(UsageError, match="cannot be read as a Debian package"):
        read_wordnet(tmp_path / "cut.deb")


def test_files_of_another_kind_under_wordnets_names_are_refused(tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / name).write_text("hello\n", encoding="utf-8")
    with pytest.raises(UsageError, match="is not WordNet's"):
        read_wordnet(tmp_path)


def test_a_wordnet_that_leaves_a_slot_empty_is_refused(wordnet: Path) -> None:
    words = read_wordnet(wordnet)
    words["noun"] = [sense for sense in words["noun"] if sense.word != "elbow"]
    with pytest.raises(UsageError, match="too few common words, none for bodypart"):
        all_slots(words)


def test_the_command_writes_one_prompt_a_line(wordnet: Path, tmp_path: Path) -> None:
    output = tmp_path / "prompts.jsonl"
    result = CliRunner().invoke(
        main, ["--wordnet", str(wordnet), "--count", "400", "--seed", "7", "--output", str(output)]
    )
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"Wrote 400 prompts of {len(KINDS)} kinds")
    lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [Prompt(line["kind"], tuple(line["turns"]), line.get("system")) for line in lines] == take(wordnet, 7, 400)


def test_the_command_names_what_is_wrong_and_leaves_with_the_usage_code(wordnet: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--wordnet", str(tmp_path), "--count", "1", "--output", str(tmp_path / "x")])
    assert (result.exit_code, "hint: apt-get download wordnet-base" in result.output) == (2, True)
    result = CliRunner().invoke(
        main, ["--wordnet", str(wordnet), "--count", "1", "--output", str(tmp_path / "no" / "x")]
    )
    assert (result.exit_code, "cannot be written" in result.output) == (2, True)
