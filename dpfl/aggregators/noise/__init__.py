"""Noise of a round: keys, normal variables, correlated and hardened noise, rings."""
