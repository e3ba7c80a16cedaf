"""Deployment of trained models: prediction, export to graphs, inference engines, benchmarks, and an HTTP server."""
