"""The one answer of the real model that tests expect, and how sure it is of it.

A test may expect a real model's choice only where its best logit leads by more than 1.0 in float32, at every token:
closer ones turn with the rounding of a CPU's kernels. `tests/aot/test_reference.py` computes the margins anew.
"""

QUESTION = "What is the capital of Japan?"
# Up to the full stop: that leads by 0.97 only
ANSWER = "The capital of Japan is Tokyo"
TOKENS = 6
# Margin of each token in float32, as transformers computes it
MARGINS = (2.54, 4.30, 3.68, 6.09, 3.26, 4.77)
