"""Privacy loss distributions: pairs that dominate a round, losses on a grid, composition."""
