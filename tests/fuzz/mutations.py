"""Ways to spoil a JSON value, a run of bytes, and a folder; each a function of a seeded `random.Random`."""

from __future__ import annotations

import copy
import json
import os
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Place = tuple[str | int, ...]

# Numbers at the edges of what a reader may expect, and values of every other type
NUMBERS: tuple[Any, ...] = (0, -1, 1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**63, 10**59, -(2**63), 0.5, -0.0, 1e308)
STRANGE: tuple[Any, ...] = (
    None,
    True,
    False,
    "",
    "x",
    [],
    {},
    [[]],
    {"x": 1},
    "0",
    "load",
    "../x",
    "/etc/passwd",
    "a" * 5000,
)
TEXTS: tuple[str, ...] = (
    "",
    " ",
    ".",
    "..",
    "../x",
    "/",
    "a/../../b",
    "\x00",
    "\ud800",
    "é",
    "x" * 300,
    "nan",
    "bfloat16",
    "int8",
)


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Every place in a JSON value, the whole of it first."""
    yield at
    if isinstance(value, dict):
        for key, held in value.items():
            yield from places(held, (*at, key))
    elif isinstance(value, list):
        for index, held in enumerate(value):
            yield from places(held, (*at, index))


def look(value: Any, at: Place) -> Any:
    for step in at:
        value = value[step]
    return value


def spoil_json(rng: random.Random, value: Any, allowed: Callable[[Place], bool] = lambda at: True) -> str:
    """Change one place of `value`, a JSON object, in place; says what was done.

    Args:
        allowed: which places may be changed.
    """
    # By depth first and then inside it, so that long lists do not take all the changes
    every = [at for at in places(value) if at and allowed(at)]
    by_depth: dict[tuple[Any, ...], list[Place]] = {}
    for at in every:
        by_depth.setdefault(tuple(step if isinstance(step, str) else "#" for step in at[:3]), []).append(at)
    at = rng.choice(by_depth[rng.choice(sorted(by_depth, key=str))])
    holder, last, old = look(value, at[:-1]), at[-1], look(value, at)
    where = ".".join(map(str, at))
    ways = ["strange", "delete", "other", "other"]
    if isinstance(old, int | float) and not isinstance(old, bool):
        ways += ["number", "number", "near", "near", "near"]
    if isinstance(old, str):
        ways += ["text", "edit"]
    if isinstance(old, list) and old:
        ways += ["shuffle", "repeat", "empty", "shorten"]
    if isinstance(old, dict):
        ways += ["add", "rename"]
    way = rng.choice(ways)
    if way == "strange":
        holder[last] = copy.deepcopy(rng.choice(STRANGE))
    elif way == "delete":
        del holder[last]
        return f"{where} deleted"
    elif way == "other":
        # What stands elsewhere is plausible and therefore the hardest to refuse
        same = [one for one in every if type(look(value, one)) is type(old) and look(value, one) != old]
        if same:
            holder[last] = copy.deepcopy(look(value, rng.choice(same)))
    elif way == "number":
        holder[last] = rng.choice(NUMBERS)
    elif way == "near":
        holder[last] = rng.choice((old + 1, old - 1, old * 2, old // 2 if isinstance(old, int) else old / 2, -old))
    elif way == "text":
        holder[last] = rng.choice(TEXTS)
    elif way == "edit":
        cut = rng.randrange(len(old) + 1)
        holder[last] = old[:cut] + rng.choice(("", "x", "/", "0", ".")) + old[cut + 1 :]
    elif way == "shuffle":
        holder[last] = rng.sample(old, len(old))
    elif way == "repeat":
        holder[last] = [*old, copy.deepcopy(rng.choice(old))]
    elif way == "empty":
        holder[last] = []
    elif way == "shorten":
        holder[last] = old[: rng.randrange(len(old))]
    elif way == "add":
        old[rng.choice(("x", "block_size", "", "\ud800"))] = rng.choice(STRANGE)
    elif way == "rename" and old:
        key = rng.choice(sorted(old))
        old[key + "x"] = old.pop(key)
    now = json.dumps(look(value, at)) if _there(value, at) else "gone"
    return f"{where}: {way}: {json.dumps(old)[:60]} -> {now[:80]}"


def _there(value: Any, at: Place) -> bool:
    try:
        look(value, at)
    except (KeyError, IndexError, TypeError):
        return False
    return True


def spoil_text(rng: random.Random, text: str) -> tuple[str, str]:
    """A JSON text that is no longer what it was as text: duplicate keys, deep nesting, NaN, cuts, huge numbers."""
    way = rng.choice(("cut", "deep", "nan", "twice", "digits", "bom", "bytes", "array"))
    if way == "cut":
        return text[: rng.randrange(len(text))], way
    if way == "deep":
        depth = rng.choice((100, 1_000, 100_000))
        return "[" * depth + "]" * depth, f"{depth} brackets"
    if way == "nan":
        return _number(rng, text, rng.choice(("NaN", "Infinity", "-Infinity", "1e999"))), way
    if way == "digits":
        return _number(rng, text, "9" * 5000), way
    if way == "twice":
        return text.replace("{", '{"format_version": 2, ', 1), way
    if way == "bom":
        return "\ufeff" + text, way
    if way == "array":
        return f"[{text}]", way
    at = rng.randrange(len(text))
    return text[:at] + chr(rng.randrange(1, 0x2FF)) + text[at + 1 :], way


def _number(rng: random.Random, text: str, number: str) -> str:
    """`text` with one of its numbers replaced."""
    starts = [i for i in range(1, len(text) - 1) if text[i].isdigit() and text[i - 1] in " :[,"]
    if not starts:
        return number
    start = end = rng.choice(starts)
    while end < len(text) and text[end] in "0123456789.e-+":
        end += 1
    return text[:start] + number + text[end:]


def spoil_bytes(rng: random.Random, data: bytes, region: int | None = None) -> tuple[bytes, str]:
    """Bytes with one change: flipped, cut, doubled, zeroed; within the first `region` of them where given."""
    if not data:
        return b"x", "a byte in an empty file"
    limit = min(len(data), region or len(data))
    at = rng.randrange(limit)
    way = rng.choice(("flip", "cut", "zero", "insert", "large", "empty", "random"))
    if way == "flip":
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :], f"a bit at {at} flipped"
    if way == "cut":
        return data[:at], f"cut at {at}"
    if way == "zero":
        length = rng.choice((1, 8, 64))
        return data[:at] + bytes(length) + data[at + length :], f"{length} zeros at {at}"
    if way == "insert":
        return data[:at] + rng.randbytes(rng.choice((1, 4, 8))) + data[at:], f"bytes inserted at {at}"
    if way == "large":
        return data[:at] + b"\xff" * 8 + data[at + 8 :], f"eight 0xff at {at}"
    if way == "empty":
        return b"", "emptied"
    return rng.randbytes(min(len(data), 4096)), "random bytes"


def spoil_folder(rng: random.Random, folder: Path, outside: Path) -> str:
    """Plant, remove or replace one entry of a folder; files are replaced and never written into.

    Args:
        outside: a file beyond the folder, for links to point at.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    folders = [folder, *sorted(path for path in folder.rglob("*") if path.is_dir())]
    way = rng.choice(("plant", "plant", "remove", "bytes", "link", "fifo", "folder", "swap", "rights"))
    file = rng.choice(files)
    name = file.relative_to(folder).as_posix()
    if way == "plant":
        names = (
            "x",
            "chat_template.jinja",
            "unit.json",
            "custom_objs_config.json",
            ".hidden",
            "manifest.json.bak",
            "x.so",
        )
        new = rng.choice(folders) / rng.choice(names)
        if new.exists():
            return "nothing: it is there"
        kind = rng.choice(("file", "link", "fifo", "socket", "folder", "loop"))
        if kind == "file":
            new.write_bytes(rng.choice((b"", b"{}", b'{"x": "../../../secret.bin"}', b"{{ messages }}")))
        elif kind == "link":
            new.symlink_to(outside)
        elif kind == "fifo":
            os.mkfifo(new)
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as one:
                here = os.getcwd()
                os.chdir(new.parent)  # a socket's address is short
                one.bind(new.name)
                os.chdir(here)
        elif kind == "folder":
            new.mkdir()
        else:
            new.symlink_to(folder)
        return f"{kind} {new.relative_to(folder)} planted"
    if way == "bytes":
        data, what = spoil_bytes(rng, file.read_bytes())
        file.unlink()
        file.write_bytes(data)
        return f"{name}: {what}"
    if way == "swap" and len(files) > 1:
        other = rng.choice([one for one in files if one != file])
        data = other.read_bytes()
        file.unlink()
        file.write_bytes(data)
        return f"{name} is now {other.relative_to(folder)}"
    if way == "link":
        moved = outside.parent / f"moved-{rng.randrange(10**9)}"
        file.rename(moved)
        file.symlink_to(moved)
        return f"{name} is a link to itself elsewhere"
    file.unlink()
    if way == "fifo":
        os.mkfifo(file)
    elif way == "folder":
        file.mkdir()
    elif way == "rights":
        file.symlink_to("/dev/full")
    return f"{name}: {way}"
