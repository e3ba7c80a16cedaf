"""The HTTP server: a bounded queue, dynamic batches, and a web page. Needs the extra ``serve``."""
