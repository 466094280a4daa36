"""Train an EAGLE3 draft for a target of one's own: self-distilled data, training-time test, published format.

    conversations -> generate (answers, features) -> vocabulary -> fit (training-time test) -> checkpoint

Everything runs on the CPU in plain PyTorch. The recipe in commands is docs/train-a-draft.md.
"""
