"""Image tasks: letters and digits by many writers, classifiers and GANs for them."""
