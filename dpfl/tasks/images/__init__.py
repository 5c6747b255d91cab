"""Tasks with images of letters and digits, and the models that learn from them."""
