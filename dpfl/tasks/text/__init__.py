"""Text tasks: sources of sentences, vocabularies, and measures of text."""
