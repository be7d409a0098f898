"""What a teacher may tune: shares of the points, limits and folders. Plain data; nbgrader_config.py hands it on."""

COURSE_ID = "flashkit"

# Shares of a Triton kernel's points where its lab names no others. "right" is the gate: without it none counts.
SHARES = {"right": 0.70, "bytes": 0.15, "compiles": 0.15}

# What cells that only a GPU can judge count in a class: "required", "bonus" (never against a student) or "off".
GPU = "bonus"

# Of one submission.
LIMITS = {"seconds_per_exercise": 60, "seconds_per_cell": 30, "memory_gib": 4, "disk_mib": 256, "processes": 64}

# nbgrader's names for its folders, below the course folder.
FOLDERS = {
    "source": "solutions",
    "release": "labs",
    "submitted": "submitted",
    "autograded": "autograded",
    "feedback": "feedback",
}


def configure(c):
    """Puts the data above into nbgrader's configuration object, and our steps in place of those that run notebooks."""
    c.CourseDirectory.course_id = COURSE_ID
    for step, folder in FOLDERS.items():
        setattr(c.CourseDirectory, f"{step}_directory", folder)
    c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__"]
    steps, own = "flashkit.grading.nbgrader_steps", "nbgrader.preprocessors"
    c.GenerateAssignment.preprocessors = [
        f"{steps}.StampPoints",
        *(f"{own}.{step}" for step in ("IncludeHeaderFooter", "LockCells", "ClearSolutions", "ClearOutput")),
        *(f"{own}.{step}" for step in ("CheckCellMetadata", "ComputeChecksums", "SaveCells", "ClearHiddenTests")),
        *(f"{own}.{step}" for step in ("ClearMarkScheme", "ComputeChecksums", "CheckCellMetadata")),
    ]
    c.Autograde.exporter_class = f"{steps}.SubmissionExporter"
    c.Autograde.sanitize_preprocessors = [f"{steps}.Rebuild"]
    c.Autograde.autograde_preprocessors = [
        f"{steps}.JudgeAndSave",
        f"{own}.AssignLatePenalties",
        f"{own}.CheckCellMetadata",
    ]
    c.ExportApp.plugin_class = "flashkit.grading.export.PendingExport"
