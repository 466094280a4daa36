"""Proof of a bundle before it is published: each compiled graph against eager PyTorch, bits across buckets, and a
scripted draft that forces every accept and reject pattern through the compiled loop."""
