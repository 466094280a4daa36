"""Checkpoints as they are published: where a model lies, what its config says, its weights and its tokenizer.

The order of use is the order of the files:

    source.py      a reference in the YAML  ->  ModelSource: a folder or .gguf file here, its fingerprint
    target.py      ModelSource  ->  TargetConfig, and its weights under Hugging Face's names
    families/      what sets each family of targets apart, and the registry that names them all
    draft.py       ModelSource  ->  DraftConfig, and its weights under one set of names
    tokenizer.py   ModelSource  ->  the three tokenizer files of a bundle

The rest serves these: `gguf_header.py`, `gguf_config.py` and `gguf_weights.py` read a GGUF file, `tensors.py`
a folder's tensor files, `fields.py` a config.json's keys, `rope.py` the rotary frequencies, `aux_layers.py`,
`draft_variants.py` and `vocabulary_map.py` what a draft's checkpoint must say; `random_weights.py` makes
weights where there are none.

What is not supported is refused by name. Reading a config or a fingerprint imports neither torch nor
transformers, so `eagle3-build plan` and an unchanged rebuild stay quick.
"""
