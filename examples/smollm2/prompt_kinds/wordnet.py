"""Common English words, definitions and example sentences, read from WordNet 3.0.

The files are those of Debian's `wordnet-base` package; the format is wndb(5WN) and cntlist(5WN). A word counts as
common when its first sense was met in the texts that WordNet's authors tagged by hand; WordNet has many words that
hardly anyone uses, and those would make prompts that nobody writes. The tagged texts lean to science, so it is also
counted how many glosses use the word: glosses are written in plain words.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runtime.bundle.errors import UsageError

FILES = ("cntlist.rev", "data.noun", "data.verb", "data.adj")
REPAIR = "apt-get download wordnet-base, and pass the .deb file (or the folder it unpacks to) as --wordnet"
# Lexicographer files (lexnames(5WN)): the field of meaning a word's synset is filed under.
NOUN_FIELDS = {
    4: "activity", 5: "animal", 6: "artifact", 7: "quality", 8: "bodypart", 9: "idea", 10: "message", 11: "happening",
    12: "feeling", 13: "wnfood", 15: "place", 17: "landform", 18: "person", 19: "phenomenon", 20: "plant",
    21: "possession", 22: "process", 25: "shape", 26: "state", 27: "substance", 28: "period",
}  # fmt: skip
ADJECTIVE_MARKER = re.compile(r"\((?:a|p|ip)\)$")
# Topics that a small chat model is not to be trained on.
UNWANTED = re.compile(
    r"\b(sex\w*|slurs?|offensive|vulgar|obscen\w*|genital\w*|penis|vagina\w*|prostitut\w*|rape\w*|nud\w+|naked|whore|"
    r"slave\w*|suicid\w*|nazi\w*|disparaging|derogatory|ethnic|negro\w*|jew\w*|kill\w*|murder\w*|drug\w*|"
    r"breasts?|buttocks?|excrement|feces|urin\w+|tortur\w*|corpse|dead|weapons?|guns?|firearms?|bomb\w*|cigarettes?|genus|damn\w*|hell|bastard|bitch|ass)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Sense:
    """The first sense of one word: how often it was tagged (`count`), and how many glosses hold the word (`uses`)."""

    word: str
    field: str
    gloss: str
    examples: tuple[str, ...]
    count: int
    uses: int


def read_wordnet(source: Path) -> dict[str, list[Sense]]:
    """The common words of WordNet by part of speech ("noun", "verb", "adj"), the most frequent first.

    Args:
        source: a folder that holds data.noun and its fellows, at any depth, or the wordnet-base .deb file.

    Raises:
        UsageError: the files are not there, or not WordNet's.
    """
    texts = _read_deb(source) if source.is_file() else _read_folder(source)
    if missing := [name for name in FILES if name not in texts]:
        raise UsageError(f"{source} holds no WordNet", expected=missing[0], found="no such file in it", repair=REPAIR)
    counts = _counts(texts["cntlist.rev"])
    uses = Counter(
        word
        for name in FILES[1:]
        for line in texts[name].splitlines()
        for word in set(re.findall(r"[a-z]+", line.rpartition(" | ")[2].lower()))
    )
    words = {part: _senses(texts[f"data.{part}"], part, counts, uses) for part in ("noun", "verb", "adj")}
    if empty := [part for part, senses in words.items() if not senses]:
        raise UsageError(
            f"data.{empty[0]} of {source} is not WordNet's",
            expected="synsets of words that cntlist.rev counts",
            found="none",
            repair=REPAIR,
        )
    return words


def _read_folder(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        raise UsageError(f"no WordNet at {folder}", expected="a folder or a .deb file", found="nothing", repair=REPAIR)
    paths = {path.name: path for name in FILES for path in sorted(folder.rglob(name))}
    return {name: path.read_text(encoding="utf-8", errors="replace") for name, path in paths.items()}


def _read_deb(path: Path) -> dict[str, str]:
    """The files in the data archive of a Debian package, which is an `ar` archive of tar files (deb(5))."""
    try:
        for name, content in _ar_members(path.read_bytes()):
            if name.startswith("data.tar"):
                with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                    return {
                        base: handle.read().decode("utf-8", errors="replace")
                        for member in archive
                        if (base := member.name.rpartition("/")[2]) in FILES and (handle := archive.extractfile(member))
                    }
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise UsageError(f"{path} cannot be read as a Debian package ({error})", repair=REPAIR) from error
    raise UsageError(f"{path} is no Debian package", expected="a member data.tar.*", found="none", repair=REPAIR)


def _ar_members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents in an `ar` archive: 60-byte headers, contents padded to an even length."""
    if not archive.startswith(b"!<arch>\n"):
        raise ValueError("it does not begin as an ar archive does")
    at = 8
    while at + 60 <= len(archive):
        header = archive[at : at + 60].decode("ascii", errors="replace")
        size = int(header[48:58])
        yield header[:16].strip().rstrip("/"), archive[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def _counts(cntlist: str) -> dict[tuple[str, int, int], int]:
    """How often the first sense of each (lemma, lexicographer file, lexical id) was tagged."""
    counts: dict[tuple[str, int, int], int] = {}
    for line in cntlist.splitlines():
        if line.count(" ") != 2 or line.count(":") != 4:
            continue
        key, sense, count = line.split()
        lemma, _, rest = key.partition("%")
        if sense == "1":
            _, file_number, lexical_id = rest.split(":")[:3]
            counts[lemma, int(file_number), int(lexical_id)] = int(count)
    return counts


def _senses(data: str, part: str, counts: dict[tuple[str, int, int], int], uses: Counter[str]) -> list[Sense]:
    senses = []
    for line in data.splitlines():
        if not line[:8].isdigit():  # the licence, on indented lines
            continue
        head, _, text = line.partition(" | ")
        fields = head.split()
        number, size = int(fields[1]), int(fields[3], 16)
        pairs = [(ADJECTIVE_MARKER.sub("", fields[4 + 2 * i]), int(fields[5 + 2 * i], 16)) for i in range(size)]
        gloss, *rest = text.strip().split('; "')
        gloss = gloss.split(";")[0].strip(" \"'")
        if UNWANTED.search(line.replace("_", " ")) or not gloss:
            continue
        names = [word.replace("_", " ") for word, _ in pairs]
        examples = tuple(example for piece in rest if (example := piece.partition('"')[0].strip()))
        for (word, lexical_id), name in zip(pairs, names, strict=True):
            count = counts.get((word, number, lexical_id), 0)
            if count and name.replace(" ", "").isalpha() and name.islower() and len(name) > 2:
                field = NOUN_FIELDS.get(number, "other") if part == "noun" else part
                senses.append(Sense(name, field, gloss, examples, count, min(uses[part] for part in name.split())))
    return sorted(senses, key=lambda sense: (-sense.count, sense.word))
