"""Texts: sentence pairs, their tokens, and batches of similar length."""
