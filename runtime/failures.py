"""Why one request ended with an error while the others of its batch went on.

Two things end a request so: what the model gave for it, and a failure in what is done for it alone (its sampler, its
stop strings, its row of a pass's result). A failure of a pass itself is everybody's and is raised.
"""

from __future__ import annotations

from runtime.bundle.errors import Eagle3Error, RequestError

NOT_FINITE_CODE, DEFECT_CODE = "logits_not_finite", "defect"


def logits_not_finite(request_id: str, position: int) -> RequestError:
    """The row that should have chosen the token at `position` holds NaN or an infinity."""
    return RequestError(
        ended(request_id),
        expected=f"finite logits for the token at position {position}",
        found="NaN or an infinity among them",
        repair="leave out what leads there (one token's embedding may be damaged), or rebuild the bundle from sound "
        "weights; with dtype float16 large ones overflow, with bfloat16 they do not",
        code=NOT_FINITE_CODE,
    )


def failed(request_id: str, error: Exception) -> RequestError:
    """Something that is done for this request alone raised `error`, which is the result's `__cause__`."""
    if isinstance(error, RequestError):
        return error
    what = ended(request_id)
    if isinstance(error, Eagle3Error):
        what = f"{what}, since {error.what[:1].lower()}{error.what[1:]}"
        made = RequestError(what, expected=error.expected, found=error.found, repair=error.repair, code=DEFECT_CODE)
    else:
        text = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": .") + " (this is a defect)"
        repair = "report it, with what EAGLE3_DEBUG=1 in the environment prints"
        made = RequestError(what, found=text, repair=repair, code=DEFECT_CODE)
    made.__cause__ = error
    return made


def ended(request_id: str) -> str:
    """How an error of a request begins; a command puts the prompt's name in place of `Request ID`."""
    return f"Request {request_id} ended before its answer was whole"
