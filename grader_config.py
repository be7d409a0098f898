"""What a teacher may tune: shares of the points, limits and folders. Plain data; nbgrader_config.py hands it on."""

COURSE_ID = "flashkit"

# Shares of an exercise's points. "right" is the gate: without it the other two count nothing.
SHARES = {"right": 0.70, "bytes": 0.15, "compiles": 0.15}

# What cells that only a GPU can judge count in a class: "required", "bonus" (never against a student) or "off".
GPU = "bonus"

# Of one submission.
LIMITS = {"seconds_per_exercise": 60, "seconds_per_cell": 30, "memory_gib": 4, "processes": 64, "output_kib": 64}

# nbgrader's names for its folders, below the course folder.
FOLDERS = {
    "source": "solutions",
    "release": "labs",
    "submitted": "submitted",
    "autograded": "autograded",
    "feedback": "feedback",
}


def configure(c):
    """Puts the data above into nbgrader's configuration object."""
    c.CourseDirectory.course_id = COURSE_ID
    for step, folder in FOLDERS.items():
        setattr(c.CourseDirectory, f"{step}_directory", folder)
    c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__"]
    c.Execute.timeout = LIMITS["seconds_per_cell"]
