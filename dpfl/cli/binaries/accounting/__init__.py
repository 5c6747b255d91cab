"""Commands that only compute: guarantees, plans, mechanisms, published numbers. No TensorFlow."""
