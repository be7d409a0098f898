"""nbgrader looks for this file name; what it says is in grader_config.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from grader_config import configure

configure(get_config())  # noqa: F821  nbgrader puts get_config here
