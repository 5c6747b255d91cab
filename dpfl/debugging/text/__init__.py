"""Language models that write about text nobody may look at: their traits, and effects of faults."""
