"""The teacher's side: nbgrader's notebooks read, submissions run apart, grades written. Never in a grading sandbox."""
