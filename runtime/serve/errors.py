"""What a client is told when a request fails: OpenAI's error object, with the status that its clients act on."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.bundle.errors import Eagle3Error, RequestError
from runtime.failures import DEFECT_CODE

logger = logging.getLogger("eagle3.serve")

INVALID = "invalid_request_error"
SERVER = "server_error"
# OpenAI's clients send a request again after 5xx unless this says no
FINAL = {"x-should-retry": "false"}
RETRY_AFTER_S = 1


@dataclass
class ApiError(Exception):
    """An answer other than 200.

    Attributes:
        status: of HTTP.
        message: one or two sentences for the person who sent the request.
        type: OpenAI's class of errors: "invalid_request_error", "server_error", ...
        param: the key of the request that is at fault.
        code: for programs: "model_not_found", "context_length_exceeded", ...
    """

    status: int
    message: str
    type: str = INVALID
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, object]:
        """OpenAI's form: {"error": {"message", "type", "param", "code"}}."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class ClientGone(Exception):
    """The client closed its connection, so there is nobody to answer."""


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """400: the request is wrong, and sending it again will not help."""
    return ApiError(400, message, param=param, code=code)


def refused(error: Eagle3Error, param: str | None = None, code: str | None = None) -> ApiError:
    """400 with an error's own sentence and repair."""
    return invalid(f"{error.sentence()} Hint: {error.repair}." if error.repair else error.sentence(), param, code)


def unauthorized() -> ApiError:
    return ApiError(
        401,
        "The API key is missing or wrong: expected the header Authorization: Bearer KEY with a key of this server.",
        type="authentication_error",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


def unknown_model(name: str, served: str) -> ApiError:
    message = f"There is no model {name!r}: this server has {served!r}."
    return ApiError(404, message, type="not_found_error", param="model", code="model_not_found")


def too_large(limit: int) -> ApiError:
    message = f"The request's body is too large: expected at most {limit} bytes."
    return ApiError(413, message, code="request_too_large", headers={"Connection": "close"})


def queue_full(limit: int) -> ApiError:
    return ApiError(
        503,
        f"The server is busy: its queue of {limit} waiting requests is full. Try again later.",
        type="overloaded_error",
        code="queue_full",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )


def too_many(prompts: int, most: int) -> ApiError:
    """400, since waiting would not help: `most` is what the server runs and queues."""
    return invalid(
        f"prompt is wrong: expected at most {most} prompts at once (--max-queue), found {prompts}.", "prompt"
    )


def stopping() -> ApiError:
    message = "The server is shutting down."
    return ApiError(503, message, type=SERVER, code="shutting_down", headers={"Retry-After": str(RETRY_AFTER_S)})


def timed_out(seconds: float) -> ApiError:
    message = f"The request took longer than {seconds:g} s, the server's --request-timeout, and was ended."
    return ApiError(504, message, type="timeout_error", code="request_timeout", headers=FINAL)


def request_failed(error: RequestError) -> ApiError:
    """500 for a request that ended by itself while the others went on; a defect's reason is in the log alone."""
    if error.code == DEFECT_CODE:
        cause = error.__cause__
        log_defect(cause if isinstance(cause, Exception) else error)
        return defect()
    return ApiError(500, error.sentence(), type=SERVER, code=error.code, headers=FINAL)


def engine_failed() -> ApiError:
    """500 for a request that the failure ended. The reason is in the server's log, not in the answer."""
    return ApiError(500, "The engine failed; the server's log says why.", type=SERVER, headers=FINAL)


def engine_gone() -> ApiError:
    """503 for a request that comes after a failure."""
    message = "The engine has failed and answers no more; the server's log says why, and a restart is needed."
    return ApiError(503, message, type=SERVER, code="engine_failed", headers=FINAL)


def defect() -> ApiError:
    return ApiError(500, "The server has a defect that this request met; its log says more.", type=SERVER)


def describe(error: BaseException) -> str:
    """An unexpected exception as one sentence, for the log."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text}." if text else f"{type(error).__name__}."


def debugging() -> bool:
    """Whether the log shows tracebacks: EAGLE3_DEBUG=1 in the environment."""
    return os.environ.get("EAGLE3_DEBUG") == "1"


def log_defect(error: Exception) -> None:
    """Log what a request met that it should not have."""
    logger.error("A request met a defect of this server: %s", describe(error), exc_info=debugging())
