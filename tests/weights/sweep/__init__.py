"""Every Vision Transformer of other libraries, with random weights, through our reader and writers: right, or refused."""
