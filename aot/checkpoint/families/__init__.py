"""The target families: one small file for each, and the registry that names them all.

    family.py      what a family says about itself: `Family`, and `LayerFeatures` of its decoder layers
    llama.py, mistral.py, qwen2.py, qwen3.py
    registry.py    model_type of a config.json, or architecture of a GGUF file  ->  Family

A family says what sets it apart from Llama, nothing else: `aot.checkpoint.target` reads the keys that all have,
and the graphs are put together from the features. A model of any other family is refused by name.
docs/add-a-model.md walks through adding one.
"""
