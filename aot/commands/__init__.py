"""Subcommands of eagle3-build, a file each."""
