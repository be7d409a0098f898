"""`nbgrader export` with what a class still waits for: a column of pending points."""

from __future__ import annotations

import csv

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.plugins import ExportPlugin

from flashkit.grading import results

COLUMNS = (
    *("assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email"),
    *("raw_score", "late_submission_penalty", "score", "max_score", "percent", "pending", "pending_cells"),
)


class PendingExport(ExportPlugin):
    """A CSV file like nbgrader's own, with ``percent``, ``pending`` points and the cells that they belong to."""

    def export(self, gradebook: Gradebook) -> None:
        destination = self.to or "grades.csv"
        students, assignments = set(map(str, self.student)), set(map(str, self.assignment))
        with open(destination, "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            for assignment in gradebook.assignments:
                for student in gradebook.students:
                    if (not students or student.id in students) and (not assignments or assignment.name in assignments):
                        writer.writerow(self._row(gradebook, assignment, student))
        self.log.info("Exported grades to %s", destination)

    def _row(self, gradebook: Gradebook, assignment, student) -> dict[str, object]:
        row = {
            "assignment": assignment.name,
            "duedate": assignment.duedate,
            "student_id": student.id,
            "last_name": student.last_name,
            "first_name": student.first_name,
            "email": student.email,
            "max_score": assignment.max_score,
            "raw_score": 0.0,
            "late_submission_penalty": 0.0,
            "score": 0.0,
        }
        try:
            submission = gradebook.find_submission(assignment.name, student.id)
        except MissingEntry:  # nothing handed in
            return _plain({**row, "percent": 0.0})
        penalty = submission.late_submission_penalty or 0.0
        row |= {"timestamp": submission.timestamp, "raw_score": submission.score, "late_submission_penalty": penalty}
        row["score"] = max(0.0, submission.score - penalty)
        row["percent"] = round(100 * row["score"] / assignment.max_score, 2) if assignment.max_score else ""
        return _plain({**row, **self._pending(submission)})

    def _pending(self, submission) -> dict[str, object]:
        points, cells = 0.0, []
        root = self.parent.coursedir.root
        for notebook in submission.notebooks:
            result = results.read(
                results.result_path(root, submission.assignment.name, submission.student.id, notebook.name)
            )
            if result is None:  # an interrupted run, or a file of another name
                points += notebook.max_score
                cells.append(f"{notebook.name}:no-result")
                continue
            for name, cell in result["cells"].items():
                if cell["pending"]:
                    points += cell["pending"]
                    cells.append(name)
        return {"pending": points, "pending_cells": " ".join(cells)}


def _plain(row: dict[str, object]) -> dict[str, object]:
    return {name: "" if value is None else value for name, value in row.items()}
