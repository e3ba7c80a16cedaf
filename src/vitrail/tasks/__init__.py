"""Tasks, a room for each, and what they share."""
