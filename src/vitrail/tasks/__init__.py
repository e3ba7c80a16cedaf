"""What is learned, a file for each task, and its metrics."""
