"""Drive an engine until its requests are done: the loop that every command shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from runtime.bundle.errors import Eagle3Error, RequestError, UsageError
from runtime.prompts import raise_together
from runtime.request import Request, RequestOutput, StepOutput


class TokenEngine(Protocol):
    """What the command line needs of `runtime.engine.Engine`; token ids in, token ids out."""

    def add_request(self, request: Request) -> None:
        """Queue `request`; raises UsageError when it can never run (its prompt is too long)."""

    def abort(self, request_id: str) -> None:
        """Forget a request and free its blocks; no later output has it. An unknown id is passed over."""

    def step(self) -> list[StepOutput]: ...

    def has_unfinished(self) -> bool: ...

    def take_finished(self) -> list[RequestOutput]: ...

    def report(self) -> dict[str, object]: ...


def generate(
    engine: TokenEngine,
    requests: Sequence[Request],
    *,
    names: Sequence[str] | None = None,
    on_step: Callable[[StepOutput], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[RequestOutput]:
    """Run `requests` as one batch; yields each as it finishes, one that ended with an error too.

    Args:
        engine: an engine with nothing unfinished.
        names: how an error names each request; without names an engine's error passes as it is.
        on_step: called with every StepOutput, as the tokens come.
        stop: asked between steps; once it is true all unfinished requests are aborted and the iteration ends.

    Raises:
        UsageError, ErrorGroup: the engine refuses requests. Nothing has run then, and none is left queued.
    """
    problems: list[Eagle3Error] = []
    for index, request in enumerate(requests):
        try:
            engine.add_request(request)
        except UsageError as error:
            problems.append(_named(error, request, names[index]) if names else error)
    if problems:
        _abort(engine, requests)
    raise_together(f"{len(problems)} of {len(requests)} prompts cannot be run", problems)
    while engine.has_unfinished():
        if stop():
            _abort(engine, requests)
            return
        for output in engine.step():
            if on_step is not None:
                on_step(output)
        for finished in engine.take_finished():
            yield finished if finished.error is None else replace(finished, error=_failure(finished, requests, names))


def raise_failures(outputs: Iterable[RequestOutput], names: Sequence[str]) -> None:
    """Raise what ended requests before their answers were whole: for commands whose figures then mean nothing.

    Args:
        outputs: several of one prompt, of several runs, may be among them; its first error is told.
        names: of the prompts, in the order of the ids that `to_requests` gave.

    Raises:
        RequestError, ErrorGroup: some ended with an error.
    """
    failures: dict[str, RequestError] = {}
    for output in outputs:
        if output.error is not None and output.request_id not in failures:
            failures[output.request_id] = failure_named(output.error, output.request_id, names[int(output.request_id)])
    raise_together(f"{len(failures)} prompts ended before their answers were whole", list(failures.values()))


def _abort(engine: TokenEngine, requests: Sequence[Request]) -> None:
    for request in requests:
        engine.abort(request.request_id)
    engine.take_finished()


def _named(error: UsageError, request: Request, name: str) -> UsageError:
    """The engine's error under the name that the user knows the prompt by."""
    what = _renamed(error, request.request_id, name)
    return UsageError(what, expected=error.expected, found=error.found, repair=error.repair)


def _failure(output: RequestOutput, requests: Sequence[Request], names: Sequence[str] | None) -> RequestError | None:
    """The error of `output` under its prompt's name, where there are names."""
    if names is None or output.error is None:
        return output.error
    place = next(place for place, request in enumerate(requests) if request.request_id == output.request_id)
    return failure_named(output.error, output.request_id, names[place])


def failure_named(error: RequestError, request_id: str, name: str) -> RequestError:
    """An error of a request that ran, under the name that the user knows the prompt by."""
    what = _renamed(error, request_id, name)
    made = RequestError(what, expected=error.expected, found=error.found, repair=error.repair, code=error.code)
    made.__cause__ = error.__cause__
    return made


def _renamed(error: Eagle3Error, request_id: str, name: str) -> str:
    own = f"Request {request_id}"
    return error.what.replace(own, name, 1) if error.what.startswith(own) else f"{name}: {error.what}"
