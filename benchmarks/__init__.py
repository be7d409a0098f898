"""What runs on a GPU machine with its own torch and triton, and its results with provenance. No Jupyter needed."""
