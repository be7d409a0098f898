"""The export says what a class still waits for."""

from types import SimpleNamespace as Some

from flashkit.grading import results
from flashkit.grading.export import PendingExport


def test_a_submission_without_a_result_is_pending_with_all_its_points(tmp_path):
    done = {"schema": results.SCHEMA, "cells": {"a": {"pending": 0.0}, "a-gpu": {"pending": 10.0}}}
    results.write(results.result_path(tmp_path, "lab", "ada", "first"), done)
    notebooks = [Some(name="first", max_score=50.0), Some(name="second", max_score=40.0)]
    submission = Some(assignment=Some(name="lab"), student=Some(id="ada"), notebooks=notebooks)
    exporter = Some(parent=Some(coursedir=Some(root=tmp_path)))
    assert PendingExport._pending(exporter, submission) == {"pending": 50.0, "pending_cells": "a-gpu second:no-result"}
