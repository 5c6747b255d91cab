"""What people look at: pages, figures and sheets of images. No TensorFlow."""
