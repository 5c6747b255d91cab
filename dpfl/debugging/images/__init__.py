"""What is wrong with images that only a generator has seen: traits, diagnosis, discriminator."""
