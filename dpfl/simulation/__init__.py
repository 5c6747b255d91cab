"""Simulation of federated training: who takes part, what executes it, and the loop that runs it."""
