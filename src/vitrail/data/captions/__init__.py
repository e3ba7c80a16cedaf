"""Images with sentences about them."""
