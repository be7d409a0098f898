"""What runs on a GPU machine with its own torch and triton, and its results with provenance. No Jupyter needed."""

import flashkit  # noqa: F401  before Triton: without a GPU it switches the interpreter on
