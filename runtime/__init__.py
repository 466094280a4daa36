"""Serve side: bundle -> loaded graphs -> speculative loop.

Nothing here traces, compiles or guesses, and nothing here imports `aot`, transformers or a compiler.
"""
