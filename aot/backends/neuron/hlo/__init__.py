"""HLO modules as neuronx-cc takes them: the messages, the passes that bring one into our form, and the lint."""
