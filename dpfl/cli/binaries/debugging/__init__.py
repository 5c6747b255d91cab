"""Commands that inspect data that nobody may look at, by private generators."""
