"""Power of detection: how small a share of damaged data the diagnoses find."""
