"""A stand-in for neuronx-cc: it answers as the compiler does and writes NEFFs that no device can run.

`install` copies this very file into a folder as the program `neuronx-cc`, so it needs the standard library alone. What
it writes has a valid header, whose build version says that it is a stand-in's, and a tar that holds the HLO which it
was given as `graph.hlo`. It says "stand-in" in its version too. `Behaviour` makes it fail, hang or lie.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

VERSION = "2.27.5334.0+standin (stand-in)"
HEADER = struct.Struct("<5Q128sI32s16s256sI64sQI468s")
# What the real one documents, and what may follow each
KNOWN = {
    "--framework": {"XLA"},
    "--target": {"trn2", "trn3"},
    "--lnc": {"1", "2"},
    "--model-type": {"transformer"},
    "--auto-cast": {"none"},
    "--native-int64": {"disabled"},
    "--implicit-integer-downcast": {"all"},
    "--output": None,
    "--logfile": None,
}
SWITCHES = {"-O1", "-O2", "--enable-fast-loading-neuron-binaries"}


@dataclass
class Behaviour:
    """What the stand-in does with graphs whose HLO holds the text `match`; all of them by default.

    exits: exit codes of the first runs; negative ones are signals that it sends itself. Later runs succeed.
    says: printed, and the reason of a failure.
    seconds: how long it takes.
    hangs: it starts a process that hangs, writes that process's id to `hanging.pid` beside itself, and hangs too.
    neff: what it writes: "valid", "none", "short", "size" (a wrong data size), "real" (a build version that does not
        tell that it is a stand-in's).
    lnc: in the header, in place of what was asked for.
    """

    match: str = ""
    exits: list[int] = field(default_factory=list)
    says: str = ""
    seconds: float = 0
    hangs: bool = False
    neff: str = "valid"
    lnc: int | None = None


def install(folder: Path, *, version: str = VERSION, behaviour: Behaviour | None = None) -> Path:
    """Write the stand-in into `folder`; returns its path. Called again, it changes version and behaviour."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "neuronx-cc"
    program.write_text(f"#!{sys.executable} -IS\n" + Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    program.chmod(0o755)
    told = {"version": version, "behaviour": asdict(behaviour or Behaviour())}
    (folder / "behaviour.json").write_text(json.dumps(told), encoding="utf-8")
    return program


def calls(folder: Path) -> list[dict[str, Any]]:
    """What the stand-in in `folder` noted: event ("version", "start", "end"), hlo's sha256, argv, folder, pid, time."""
    file = folder / "calls.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def write_header(
    data: bytes,
    *,
    lnc: int,
    build_version: str = VERSION,
    package_version: int = 1,
    version: tuple[int, int] = (2, 0),
    num_tpb: int = 1,
    feature_bits: int = 0,
    digest: bytes | None = None,
    uuid: bytes = bytes(range(16)),
    header_size: int = HEADER.size,
    data_size: int | None = None,
) -> bytes:
    """The 1,024 bytes that stand before `data` in a NEFF."""
    return HEADER.pack(
        package_version,
        header_size,
        len(data) if data_size is None else data_size,
        *version,
        build_version.encode(),
        num_tpb,
        hashlib.sha256(data).digest() if digest is None else digest,
        uuid,
        b"graph",
        num_tpb,
        bytes([num_tpb % 256]),
        feature_bits,
        lnc,
        b"",
    )


def neff(hlo: bytes, *, lnc: int, **fields: Any) -> bytes:
    """A stand-in's NEFF: header and tar."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        member = tarfile.TarInfo("graph.hlo")
        member.size = len(hlo)
        tar.addfile(member, io.BytesIO(hlo))
    return write_header(held.getvalue(), lnc=lnc, **fields) + held.getvalue()


def hlo_of(data: bytes) -> bytes:
    """The HLO in a stand-in's NEFF."""
    with tarfile.open(fileobj=io.BytesIO(data[HEADER.size :])) as tar:
        member = tar.extractfile("graph.hlo")
        if member is None:
            raise LookupError("graph.hlo")
        return member.read()


def main() -> int:
    here = Path(sys.argv[0]).parent
    told = json.loads((here / "behaviour.json").read_text(encoding="utf-8"))
    if sys.argv[1:] == ["--version"]:
        note(here, event="version")
        # As the real one, which says more on further lines
        print(
            f"NeuronX Compiler version {told['version']}\n\nPython version 3.11.9\nNumPy version 2.1.0", file=sys.stderr
        )
        return 0
    options = read_arguments(sys.argv[1:])
    if isinstance(options, str):
        print(f"neuronx-cc: error: {options}", file=sys.stderr)
        return 2
    hlo = Path(sys.argv[2]).read_bytes()
    digest = hashlib.sha256(hlo).hexdigest()
    behaviour = Behaviour(**told["behaviour"])
    if behaviour.match.encode() not in hlo:
        behaviour = Behaviour()
    before = sum(call["event"] == "start" and call["hlo"] == digest for call in calls(here))
    note(here, event="start", hlo=digest, argv=sys.argv[1:], folder=str(Path.cwd()))
    code = work(here, options, hlo, behaviour, before)
    note(here, event="end", hlo=digest)
    if code < 0:
        os.kill(os.getpid(), -code)
    return code


def work(here: Path, options: dict[str, str], hlo: bytes, behaviour: Behaviour, before: int) -> int:
    print(behaviour.says or "Compiler status PASS")
    Path(options["--logfile"]).write_text(f"stand-in, run {before + 1}\n", encoding="utf-8")
    sys.stdout.flush()
    time.sleep(behaviour.seconds)
    if behaviour.hangs:
        hanging = subprocess.Popen([sys.executable, "-IS", "-c", "import time; time.sleep(600)"])
        (here / "hanging.tmp").write_text(str(hanging.pid), encoding="utf-8")
        (here / "hanging.tmp").rename(here / "hanging.pid")
        time.sleep(600)
    if before < len(behaviour.exits):
        return behaviour.exits[before]
    lnc = int(options["--lnc"]) if behaviour.lnc is None else behaviour.lnc
    real = {"build_version": "2.27.5334.0+f702b353"} if behaviour.neff == "real" else {}
    data = neff(hlo, lnc=lnc, **real)
    if behaviour.neff == "short":
        data = data[:1000]
    if behaviour.neff == "size":
        data += b"more"
    if behaviour.neff != "none":
        Path(options["--output"]).write_bytes(data)
    return 0


def read_arguments(argv: list[str]) -> dict[str, str] | str:
    """The options by name, or what is wrong with them."""
    if argv[:1] != ["compile"] or len(argv) < 2 or "/" in argv[1]:
        return "expected: compile FILE"
    options: dict[str, str] = {}
    rest = iter(argv[2:])
    for argument in rest:
        if argument in SWITCHES:
            options[argument[:2]] = argument
            continue
        if argument not in KNOWN:
            return f"unrecognized arguments: {argument}"
        value, allowed = next(rest, ""), KNOWN[argument]
        if not value or (allowed is not None and value not in allowed):
            return f"argument {argument}: invalid choice: {value!r}"
        options[argument] = value
    missing = [name for name in ("--framework", "--target", "--output", "--logfile", "--lnc") if name not in options]
    return f"missing {missing}" if missing else options


def note(here: Path, **call: Any) -> None:
    line = (
        json.dumps({"hlo": "", "argv": [], "folder": "", "pid": os.getpid(), "time": time.monotonic(), **call}) + "\n"
    )
    descriptor = os.open(here / "calls.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, line.encode())
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
