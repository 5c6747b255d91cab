"""Language models: their layers, how they are saved, trained on public text, and sampled."""
