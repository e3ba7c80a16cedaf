"""One file per architecture, assembled from parts; the table of sizes; the registry of names."""
