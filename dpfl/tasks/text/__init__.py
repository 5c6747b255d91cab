"""Text tasks: sources of sentences, vocabularies, and what is measured on text."""
