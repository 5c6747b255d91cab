"""Language models: architectures, metrics, pre-training on public text, sampling, files."""
