"""nbgrader looks for this file name; what it says is in grader_config.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

try:
    from grader_config import configure

    configure(get_config())  # noqa: F821  nbgrader puts get_config here
except Exception as error:  # nbgrader would go on without it, and run student code as you, in no sandbox
    sys.exit(f"grader_config.py cannot be used, so nothing was done: {type(error).__name__}: {error}")
