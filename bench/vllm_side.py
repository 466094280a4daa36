"""vLLM's side of `bench/vllm_acceptance.py`: token ids in, token ids and acceptance counts out.

    PYTHON_OF_VLLM -I bench/vllm_side.py JOB.json ANSWERS.json

Runs in vLLM's own environment and imports nothing of ours, so that no error of ours can be on both sides. Greedy, one
request at a time, and no prefix is cached: each prompt starts from nothing. Without "draft" in the job, vLLM decodes
plainly. Both files' keys are those of `Job` and `Answer`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, TypedDict

# Read when vLLM is imported: the KV cache in GiB, and the engine in this process. A compute thread bound to one core
# would wait there while a neighbour has it.
SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
DRAFTS = "vllm:spec_decode_num_drafts"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_per_pos"


class JobRequest(TypedDict):
    """One prompt and how many tokens to generate at most."""

    prompt_token_ids: list[int]
    max_tokens: int


class Job(TypedDict):
    """What to run. `model` and `draft` are Hugging Face folders; `dtype` is "bfloat16", "float16" or "float32"."""

    model: str
    draft: str | None
    num_speculative_tokens: int
    dtype: str
    max_model_len: int
    stop_token_ids: list[int]
    requests: list[JobRequest]


class Answer(TypedDict):
    """One request's tokens, an end-of-sequence id included, its drafts, and of these those accepted up to each
    position."""

    token_ids: list[int]
    num_drafts: int
    num_accepted_tokens_per_pos: list[int]


def main(job: Job) -> dict[str, Any]:
    """Run the job: vLLM's version, and an `Answer` for every request."""
    os.environ.update(SETTINGS)
    import vllm  # type: ignore[import-not-found]

    speculation = {
        "method": "eagle3",
        "model": job["draft"],
        "num_speculative_tokens": job["num_speculative_tokens"],
    }
    engine = vllm.LLM(
        model=job["model"],
        speculative_config=speculation if job["draft"] else None,
        dtype=job["dtype"],
        max_model_len=job["max_model_len"],
        max_num_seqs=1,
        enforce_eager=True,
        enable_prefix_caching=False,
        disable_log_stats=False,
        seed=0,
    )
    answers: list[Answer] = []
    before = counts(engine)
    for number, request in enumerate(job["requests"], start=1):
        sampling = vllm.SamplingParams(
            temperature=0.0, max_tokens=request["max_tokens"], stop_token_ids=job["stop_token_ids"]
        )
        output = engine.generate({"prompt_token_ids": request["prompt_token_ids"]}, sampling, use_tqdm=False)[0]
        after = counts(engine)
        drafts, *accepted = (now - then for now, then in zip(after, before, strict=True))
        answers.append(
            {
                "token_ids": list(output.outputs[0].token_ids),
                "num_drafts": drafts,
                "num_accepted_tokens_per_pos": accepted,
            }
        )
        before = after
        sys.stderr.write(f"vLLM answered {number} of {len(job['requests'])}\n")
    return {"version": vllm.__version__, "answers": answers}


def counts(engine: Any) -> list[int]:
    """Drafts so far, and after it the accepted tokens so far by position; only a 0 where nothing speculates."""
    found = {metric.name: metric for metric in engine.get_metrics()}
    if DRAFTS not in found:
        return [0]
    return [found[DRAFTS].value, *found[ACCEPTED].values]


if __name__ == "__main__":
    result = main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(result), encoding="utf-8")
