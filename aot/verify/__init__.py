"""Proof of a bundle before it is published.

Each compiled graph against eager PyTorch, bits across rows and buckets, and a scripted draft that forces every accept
and reject pattern through the compiled loop.
"""
