"""`eagle3-run tune`: how many draft tokens pay at which batch size, measured as goodput, and the schedule of it.

measure   a batch of each size kept full, at each K, in turns
choose    the K of each batch size, and the ranges between them
result    all that was measured, and its JSON
table, plot   the result for people
"""
