"""Simulation of federated training: who takes part, and the loop that runs the rounds."""
