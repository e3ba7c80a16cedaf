"""What is learned, and how right an answer is."""
