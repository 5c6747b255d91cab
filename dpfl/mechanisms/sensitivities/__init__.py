"""Sensitivities of strategy matrices: one file per way to compute or bound them."""
