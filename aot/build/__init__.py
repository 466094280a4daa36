"""The build: plan, compile, store weights, assemble, verify, publish."""
