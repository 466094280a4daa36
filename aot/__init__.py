"""Build side: configuration -> plan -> trace -> compile -> verify -> bundle.

`aot` imports `runtime.bundle`, the contract between the halves, and nothing else of `runtime` but the loop that the
verification step drives. `runtime` never imports `aot`.
"""
