"""eagle3-run on compiled bundles: exact, in the format that is promised, refusing what is damaged or does not fit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aot.verify.scripted import check_scripted
from runtime.backends import Backend, backend_for
from runtime.bundle.errors import CompileError
from runtime.bundle.open import Bundle, open_bundle
from runtime.engine import Engine
from runtime.generate import generate
from runtime.request import Request
from runtime.weights import Weights
from tests import smollm2_answer
from tests.aot.verify import doctors

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(900)  # the first test waits for its bundle

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(params=["tiny_bundle", "smollm2_bundle"])
def bundle(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.getfixturevalue(request.param)
    return folder


@pytest.fixture
def run(console: Callable[..., Any]) -> Run:
    def eagle3_run(bundle: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = console("runtime.cli", "--bundle", bundle, *arguments)
        return done

    return eagle3_run


@pytest.fixture
def linked(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A copy of the tiny bundle to damage; a test replaces files and does not write into them."""
    return Path(shutil.copytree(tiny_bundle, tmp_path / "copy", copy_function=os.link))


def write_prompts(folder: Path, *prompts: list[int], **options: object) -> Path:
    file = folder / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt_token_ids": ids, **options}) + "\n" for ids in prompts))
    return file


def answers(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def ids(length: int, seed: int) -> list[int]:
    """Token ids of some prompt, below the tiny vocabulary of 256."""
    return [(7 * i * i + 13 * i + 29 * seed) % 250 + 2 for i in range(length)]


def test_check_finds_speculation_equal_to_plain_decoding(run: Run, bundle: Path) -> None:
    results = answers(run(bundle, "--check", "--max-tokens", 12, "--json"))
    assert len(results) == 8
    assert all(result["same"] and result["first_difference"] == {} for result in results)
    assert all(1 <= result["tokens"] <= 12 for result in results)


def test_a_json_line_has_exactly_the_promised_keys(run: Run, bundle: Path, tmp_path: Path) -> None:
    (line,) = answers(run(bundle, "--prompts", write_prompts(tmp_path, ids(6, 1), max_tokens=9), "--json"))
    assert set(line) == {"text", "token_ids", "finish_reason", "usage", "timing", "spec_decode"}
    assert line["finish_reason"] in ("stop", "length")
    assert line["usage"] == {"prompt_tokens": 6, "completion_tokens": len(line["token_ids"])}
    assert set(line["timing"]) == {"ttft_ms", "tpot_ms", "tokens_per_s"}
    assert all(value > 0 for value in line["timing"].values())
    spec = line["spec_decode"]
    assert set(spec) == {
        "num_drafts",
        "num_draft_tokens",
        "num_accepted_tokens",
        "num_accepted_tokens_per_pos",
        "mean_acceptance_length",
    }
    assert spec["num_drafts"] > 0
    assert len(spec["num_accepted_tokens_per_pos"]) == 3
    assert sum(spec["num_accepted_tokens_per_pos"]) == spec["num_accepted_tokens"]
    expected = 1 + spec["num_accepted_tokens"] / spec["num_drafts"]
    assert spec["mean_acceptance_length"] == pytest.approx(expected, abs=1e-4)


def test_the_text_is_the_same_plain_speculative_alone_and_in_a_batch(run: Run, bundle: Path, tmp_path: Path) -> None:
    # One chunk, several chunks with an odd rest, one token; more requests than the batch holds
    prompts = [ids(5, 1), ids(45, 2), ids(1, 3)]
    together = ("--prompts", write_prompts(tmp_path, *prompts, max_tokens=20), "--ignore-eos", "--json")
    plain = [line["token_ids"] for line in answers(run(bundle, *together, "--no-speculation"))]
    batch = answers(run(bundle, *together))
    assert [line["token_ids"] for line in batch] == plain
    assert [len(tokens) for tokens in plain] == [20, 20, 20]
    assert all(line["spec_decode"]["num_draft_tokens"] > 0 for line in batch)
    for prompt, expected in zip(prompts, plain, strict=True):
        alone = ("--prompts", write_prompts(tmp_path, prompt, max_tokens=20), "--ignore-eos", "--json")
        (line,) = answers(run(bundle, *alone))
        assert line["token_ids"] == expected


def test_smollm2_answers_a_question_from_a_prompt(run: Run, smollm2_bundle: Path) -> None:
    question = ("--prompt", smollm2_answer.QUESTION, "--max-tokens", smollm2_answer.TOKENS)
    (line,) = answers(run(smollm2_bundle, *question, "--json"))
    assert line["text"] == smollm2_answer.ANSWER
    assert line["finish_reason"] == "length"
    done = run(smollm2_bundle, *question, "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, line["text"] + "\n", "")


def test_max_model_len_ends_a_request(run: Run, bundle: Path, tmp_path: Path) -> None:
    longest = json.loads((bundle / "manifest.json").read_text())["limits"]["max_model_len"]
    prompts = write_prompts(tmp_path, ids(longest - 6, 4), ids(longest - 1, 5), max_tokens=50)
    first, second = answers(run(bundle, "--prompts", prompts, "--ignore-eos", "--json"))
    assert (len(first["token_ids"]), first["finish_reason"]) == (6, "length")
    assert (len(second["token_ids"]), second["finish_reason"]) == (1, "length")


def test_a_prompt_that_is_too_long_is_refused(run: Run, bundle: Path, tmp_path: Path) -> None:
    longest = json.loads((bundle / "manifest.json").read_text())["limits"]["max_model_len"]
    prompts = write_prompts(tmp_path, ids(longest, 4))
    done = run(bundle, "--prompts", prompts, "-q")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"error: prompts.jsonl line 1 cannot run: expected a prompt of at most {longest - 1} tokens "
        f"(max_model_len - 1), found {longest}.\n"
        "hint: shorten the prompt, or build the bundle with a larger max_model_len\n"
    )


def test_a_bundle_runs_from_wherever_it_is_put(run: Run, tiny_bundle: Path, linked: Path, tmp_path: Path) -> None:
    moved = linked.rename(tmp_path / "another place, with ünicode")
    question = ("--prompts", write_prompts(tmp_path, ids(9, 6), max_tokens=8), "--json")
    (there,), (here,) = answers(run(moved, *question)), answers(run(tiny_bundle, *question))
    assert there["token_ids"] == here["token_ids"]


def test_two_engines_in_one_process_do_not_disturb_each_other(bundle: Path) -> None:
    opened = open_bundle(bundle)
    requests = [Request(str(n), tuple(ids(8 + n, n)), max_tokens=10, ignore_eos=True) for n in range(2)]
    expected = [output.token_ids for output in generate(Engine.load(opened), requests[:1])]
    expected += [output.token_ids for output in generate(Engine.load(opened), requests[1:])]
    first, second = Engine.load(opened), Engine.load(opened, speculation=False)
    first.add_request(requests[0])
    second.add_request(requests[1])
    while first.has_unfinished() or second.has_unfinished():  # step by step in turns
        for engine in (first, second):
            if engine.has_unfinished():
                engine.step()
    assert [output.token_ids for engine in (first, second) for output in engine.take_finished()] == expected


UNIT = "graphs/target_layer.r1x4/unit.so"


def damage_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x10
    file.unlink()
    file.write_bytes(data)


def truncate(file: Path) -> None:
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data[:-100])


@pytest.mark.parametrize(
    ("pattern", "damage", "complaint"),
    [
        (UNIT, damage_byte, "is changed: expected sha256 "),
        ("weights/target.head-*", Path.unlink, "is missing: expected "),
        ("weights/draft-*", truncate, "is changed: expected "),
        ("weights/draft-*", damage_byte, "is changed: expected sha256 "),
    ],
)
def test_a_damaged_bundle_is_refused(
    run: Run, linked: Path, tmp_path: Path, pattern: str, damage: Callable[[Path], None], complaint: str
) -> None:
    (file,) = linked.glob(pattern)
    damage(file)
    done = run(linked, "--prompts", write_prompts(tmp_path, [3]))
    assert done.returncode == 5
    assert done.stdout == ""
    first, problem, hint = done.stderr.splitlines()
    assert first == "error: The bundle copy is damaged."
    assert problem.startswith(f"  - {file.relative_to(linked).as_posix()} {complaint}")
    assert hint == "    hint: get the bundle again from where it was built, or rebuild it with eagle3-build"


def test_all_damage_is_reported_at_once(run: Run, linked: Path, tmp_path: Path) -> None:
    damage_byte(linked / UNIT)
    (linked / "graphs" / "target_embed.t4" / "unit.so").unlink()
    done = run(linked, "--prompts", write_prompts(tmp_path, [3]), "--json")
    assert done.returncode == 5
    problems = json.loads(done.stdout)["problems"]
    assert sorted(problem["message"].partition(" ")[0] for problem in problems) == [
        "graphs/target_embed.t4/unit.so",
        UNIT,
    ]


# A process that believes its CPU to be an old one, and says afterwards whether it mapped compiled code
OLD_CPU = """
import sys
import runtime.bundle.host as host
host.cpu_features = lambda: frozenset({"sse4_2"})
from runtime.cli import main
code = main(sys.argv[1:])
print("mapped" if "unit.so" in open("/proc/self/maps").read() else "not mapped")
sys.exit(code)
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="mapped files are looked up in /proc")
def test_a_cpu_without_the_features_is_refused_before_code_is_loaded(
    console: Callable[..., Any], tiny_bundle: Path, tmp_path: Path
) -> None:
    needs = json.loads((tiny_bundle / "manifest.json").read_text())["requires"]["cpu_features"]
    if not needs:
        pytest.skip("this machine's bundles run on any CPU of its kind")
    prompts = write_prompts(tmp_path, [3])
    script = OLD_CPU.replace("sys.argv[1:]", repr(["--bundle", str(tiny_bundle), "--prompts", str(prompts)]))
    done = console(None, flags=("-c", script))
    assert done.returncode == 4
    assert done.stdout == "not mapped\n"
    missing = ", ".join(sorted(needs))
    assert done.stderr == (
        "error: This CPU lacks instructions that the compiled graphs use: "
        f"expected {', '.join(needs)}, found no {missing}.\n"
        "hint: rebuild the bundle on a machine of this kind with eagle3-build\n"
    )
    able = console(None, flags=("-c", script.replace('frozenset({"sse4_2"})', f"frozenset({needs!r})")))
    assert (able.returncode, able.stdout.splitlines()[-1]) == (0, "mapped")


def test_the_shipped_draft_is_accepted(run: Run, smollm2_bundle: Path) -> None:
    """Far below what it reaches, far above what chance or a misread checkpoint would."""
    lines = (ROOT / "examples" / "smollm2" / "eval.jsonl").read_text(encoding="utf-8").splitlines()[::12]
    prompts = smollm2_bundle.parent / "eval.jsonl"
    prompts.write_text("\n".join(lines), encoding="utf-8")
    done = run(smollm2_bundle, "--prompts", prompts, "--max-tokens", 48, "--json")
    counts = [line["spec_decode"] for line in answers(done)]
    assert len(counts) == 8
    drafts = sum(count["num_drafts"] for count in counts)
    assert sum(count["num_accepted_tokens"] for count in counts) / drafts > 0.4


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("target_verify_head", doctors.never_accepts),
        ("target_verify_head", doctors.accepts_one_too_many),
        ("target_verify_head", doctors.commits_the_draft),
        ("target_layer.r2x4", doctors.forgets_row(3)),
        ("target_layer.r2x4", doctors.forgets_row(1, 1)),
    ],
    ids=["never accepts", "one too many", "the draft's token", "a stale bonus row", "one request's stale row"],
)
def test_p1_compiled_graphs_that_are_wrong_fail_the_patterns(
    kind: str, change: doctors.Change, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = open_bundle(tiny_bundle)
    assert check_scripted(bundle).patterns == bundle.manifest.exactness.scripted_patterns

    def wrong(bundle: Bundle, weights: Weights, device: str | None = None) -> Backend:
        return doctors.doctor(kind, change)(backend_for(bundle, weights, device))

    monkeypatch.setattr("runtime.graphs.backend_for", wrong)
    with pytest.raises(CompileError, match="Verify pass"):
        check_scripted(bundle)
