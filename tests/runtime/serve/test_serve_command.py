"""`eagle3-run serve` as a process: what it refuses before it starts, and how signals end it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from runtime.bundle.errors import UsageError
from runtime.cli import main
from runtime.serve.server import Address, bind, listen, url_of
from tests import smollm2_answer

ROOT = Path(__file__).parents[3]

# The toy's engine behind the real process: sockets, log and signals as `eagle3-run serve` has them
PROGRAM = """
import sys
from tests.runtime.serve.conftest import SHAPE, TOKENIZER, Slow, engine_of
from tests.runtime.loop.rig import make_rig
from runtime.serve.server import Address, bind, listen, run_to_end, set_up_log, url_of
from runtime.serve.start import assemble, describe

set_up_log("error" if "errors only" in sys.argv else "info")
rig = make_rig(SHAPE)
slow = Slow(engine_of(rig))
if "hold" in sys.argv:
    slow.hold()
driver, app = assemble(slow, describe(rig.manifest, TOKENIZER), max_running=4)
bound = bind(Address("127.0.0.1", 0))
print(url_of(bound), flush=True)
listen(bound, Address("127.0.0.1", 0))
if "hold" in sys.argv:
    import threading
    threading.Thread(target=lambda: (sys.stdin.readline(), slow.release()), daemon=True).start()
run_to_end(app, driver, bound, shutdown_timeout=30)
print("ended", flush=True)
"""


@pytest.fixture
def process() -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """`process("hold")`: the program above and its URL; "hold" keeps its engine from stepping until a line comes."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(child)
        assert child.stdout is not None
        return child, child.stdout.readline().strip()

    yield start
    for child in started:
        child.kill()
        child.communicate()


def post(url: str, answers: list[Any]) -> threading.Thread:
    """Send a request from a thread, which puts the answer or the failure into `answers`."""

    def send() -> None:
        try:
            answers.append(httpx.post(f"{url}/v1/completions", json={"prompt": "hello"}, timeout=60).status_code)
        except httpx.HTTPError as error:
            answers.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def until_busy(url: str) -> None:
    """Wait until the server has a request."""
    for _ in range(2000):
        counts = re.findall(
            r"^vllm:num_requests_(?:running|waiting){.*} (\S+)$", httpx.get(f"{url}/metrics").text, re.M
        )
        assert len(counts) == 2
        if sum(map(float, counts)) > 0:
            return
        threading.Event().wait(0.01)
    raise AssertionError("no request came")


def until_closed(url: str) -> None:
    """Wait until nobody accepts connections any more."""
    for _ in range(2000):
        try:
            httpx.get(f"{url}/health")
        except httpx.TransportError:
            return
        threading.Event().wait(0.01)
    raise AssertionError("the server still takes connections")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_what_runs_and_the_process_exits_with_0(process: Any, number: signal.Signals) -> None:
    child, url = process("hold")
    answers: list[Any] = []
    thread = post(url, answers)
    until_busy(url)
    child.send_signal(number)
    until_closed(url)
    out, err = child.communicate("go\n", timeout=60)
    thread.join(60)
    assert (child.returncode, answers, out) == (0, [200], "ended\n"), err
    assert "Stopping: 1 requests have 30 s to end." in err
    assert "Traceback" not in err


def test_b12_a_log_of_errors_alone_has_nothing_of_a_server_that_is_well(process: Any) -> None:
    child, url = process("errors only")
    assert httpx.get(f"{url}/health", timeout=60).status_code == 200
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (0, "ended\n", "")


def test_a_second_signal_ends_the_process_at_once(process: Any) -> None:
    child, url = process("hold")
    answers: list[Any] = []
    thread = post(url, answers)
    until_busy(url)
    child.send_signal(signal.SIGTERM)
    assert child.stderr is not None
    assert any("Stopping: 1 requests" in line for line in iter(child.stderr.readline, ""))
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 128 + signal.SIGTERM
    thread.join(60)
    assert isinstance(answers[0], httpx.HTTPError)
    assert "1 requests were lost" in child.stderr.read()


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["serve", *arguments])
    return code, capsys.readouterr().err


def test_a_taken_port_is_told_before_anything_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, error = run("--bundle", "nowhere", "--port", port, capsys=capsys)
    assert code == 2
    assert f"cannot listen on 127.0.0.1:{port}: found address already in use" in error
    assert "another --port" in error


def test_two_servers_that_start_at_once_do_not_share_a_port() -> None:
    first = bind(Address("127.0.0.1", 0))
    address = Address("127.0.0.1", first.getsockname()[1])
    second = bind(address)
    with first, second:
        listen(first, address)
        with pytest.raises(UsageError, match="in use"):
            listen(second, address)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
def test_a_host_that_is_not_ours_is_refused(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = run("--bundle", "nowhere", "--host", host, "--port", "0", capsys=capsys)
    assert (code, "choose a --host of this machine" in error) == (2, True)


def test_a_bundle_that_is_none_has_the_exit_code_of_the_other_commands(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, error = run("--bundle", str(tmp_path), "--port", "0", capsys=capsys)
    assert code == main(["--bundle", str(tmp_path), "--prompt", "x"]) != 0
    assert error.splitlines()[0].startswith("error: ")


def test_a_missing_extra_is_one_sentence_with_the_command_that_installs_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, error = run("--bundle", "nowhere", capsys=capsys)
    assert code == 2
    assert "found no uvicorn." in error
    assert "hint: pip install 'eagle3-aot[serve]'" in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--bundle", "x", "--api-key", " "), "API key"),
        (("--bundle", "x", "--api-key", "schlüssel"), "API key"),
        (("--bundle", "x", "--port", "65536"), "65536"),
        (("--bundle", "x", "--request-timeout", "0"), "request-timeout"),
        (("--bundle", "x", "--request-timeout", "nan"), "request-timeout"),
        (("--bundle", "x", "--request-timeout", "1e30"), "request-timeout"),
        (("--bundle", "x", "--shutdown-timeout", "inf"), "shutdown-timeout"),
        (("--bundle", "x", "--api-key", " padded"), "API key"),
        (("--bundle", "x", "--served-model-name", ""), "served-model-name"),
        (("--bundle", "x", "--served-model-name", "\udcff"), "served-model-name"),
        (("--bundle", "x", "--host", "a..b"), "no host can have"),
        (("--bundle", "x", "--host", "a" * 70), "no host can have"),
        (("--bundle", "x", "--rejection", "none"), "rejection"),
        ((), "bundle"),
    ],
)
def test_wrong_options_are_refused(arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = run(*arguments, capsys=capsys)
    assert (code, words in error) == (2, True), error


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("127.1.2.3", True), ("0.0.0.0", False), ("::", False)],
)
def test_which_hosts_are_loopback(host: str, loopback: bool) -> None:
    assert Address(host, 1).is_loopback == loopback


def test_a_url_of_ipv6_has_brackets() -> None:
    try:
        bound = bind(Address("::1", 0))
    except UsageError:
        pytest.skip("this machine has no IPv6")
    with bound:
        assert re.fullmatch(r"http://\[::1\]:\d+", url_of(bound))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_real_bundle_answers_the_openai_client(smollm2_bundle: Path) -> None:
    import openai

    from bench.server_overhead import server

    with server(smollm2_bundle, ("--api-key", "k", "--served-model-name", "small")) as (url, _):
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        question: Any = [{"role": "user", "content": smollm2_answer.QUESTION}]
        texts = []
        # The likeliest tokens, and drawn ones of a seed: streamed or whole, the same text
        for sampling in ({"temperature": 0}, {"temperature": 1.5, "seed": 7}):
            asked: Any = {"model": "small", "messages": question, "max_tokens": 40, **sampling}
            whole = client.chat.completions.create(**asked)
            parts = client.chat.completions.create(**asked, stream=True)
            texts.append("".join(part.choices[0].delta.content or "" for part in parts))
            assert whole.choices[0].message.content == texts[-1]
        assert texts[0].startswith(smollm2_answer.ANSWER)
        # At this temperature 40 equal tokens would be a miracle on any CPU
        assert texts[0] != texts[1]
