"""The HTTP server: a bounded queue, batches made of what waits, and a page. Needs the extra ``serve``."""
