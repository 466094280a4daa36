"""`eagle3-run serve`: an HTTP server with OpenAI's interface over one engine.

The engine runs in a thread of its own (`driver`). The event loop reads requests (`fields`, `completions`, `chat`),
turns tokens into text (`choice`, `logprobs`) and writes answers (`respond`). Nothing here is imported by another
command, since it needs the extra `serve`.
"""
