"""Tasks with text: where sentences come from, and what is measured on them."""
