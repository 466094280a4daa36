"""The Neuron backend: whole graphs lowered to HLO, and NEFFs made of them by AWS's compiler where there is one.

Nothing here has met a Neuron device or neuronx-cc itself. How the compiler is called, what it answers and what it
writes follow AWS's documentation and public projects that call it; the tests drive a stand-in that says it is one.
"""
