"""Plans for a run before it starts: the request, and its answer as rows of numbers."""
