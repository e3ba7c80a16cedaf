"""What is learned, a file for each task, and how right an answer is."""
