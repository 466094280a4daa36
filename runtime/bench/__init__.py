"""`eagle3-run bench`: a bundle measured on prompts, with and without speculation in the same run.

choose    which prompts and which numbers of draft tokens
measure   every prompt through every engine, back to back
figures   from runs to acceptance, rates, ratios and milliseconds
result    all figures of a run beside the facts without which they say nothing
table, plot   the result for people; its JSON is for machines
"""
