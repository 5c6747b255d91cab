"""Images that only generators have seen: traits, comparisons, a diagnosis, a discriminator."""
