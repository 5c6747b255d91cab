"""Output for people: HTML pages, figures and contact sheets. No TensorFlow."""
