"""Texts: sentences in pairs, their tokens, and batches of similar length."""
