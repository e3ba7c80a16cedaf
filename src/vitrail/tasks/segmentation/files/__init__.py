"""Images and their masks in files."""
