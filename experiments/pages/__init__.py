"""Pages and tables that only one binary prints."""
