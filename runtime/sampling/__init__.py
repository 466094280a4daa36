"""How a target's logits become tokens: parameters, processors, draws and rejection. Imports no engine."""
