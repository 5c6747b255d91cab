"""The image study of [Augenstein20], section 6: its settings, runs, findings and page."""
