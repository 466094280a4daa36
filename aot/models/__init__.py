"""The pieces that graphs are made of, in plain PyTorch: what runs eagerly here is what gets compiled.

Modules are functional: KV pools come in as arguments and are updated in place, nothing is kept between calls, and every
shape but the context width and the pool size is static.
"""
