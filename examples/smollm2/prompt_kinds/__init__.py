"""What the training prompts are made of: a small template language, word lists, WordNet, and families of kinds."""
