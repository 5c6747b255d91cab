"""Messages that people wrote, such as those of commits, as text of one client per author."""
