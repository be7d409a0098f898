"""The chapters: each runs top to bottom in a minute without a word on stderr, and keeps the rules of its form."""

import re
import resource

import nbformat
import pytest

from flashkit import figures
from flashkit.predict import QUESTIONS
from tests.notebooks.execution import ROOT, execute

CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 60
CODE_LINES, KERNEL_LINES = 12, 25
PARAGRAPH_WORDS = 60
DRAWS = re.compile(rf"\b({'|'.join(figures.__all__)})\([^)]*\)(\.still\([^)]*\))?\s*$")

each_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


def read(path):
    return nbformat.read(path, as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def test_there_are_chapters():
    assert {"00_start_here", "03_flash_forward"} <= {path.stem for path in CHAPTERS}


@pytest.mark.alone
@each_chapter
def test_it_runs_top_to_bottom_quickly_and_quietly(path, tmp_path):
    """Quickly in processor time, its kernel's included: another program's load is not the chapter's."""
    before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    shown = execute(path, tmp_path)
    assert sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before < SECONDS
    assert {ident: cell.stderr for ident, cell in shown.items() if cell.stderr} == {}


@each_chapter
def test_cells_are_few_short_and_balanced(path):
    notebook = read(path)
    assert 30 <= len(notebook.cells) <= 50
    assert 0.8 <= len(text(notebook)) / len(code(notebook)) <= 1.8
    for cell in code(notebook):
        limit = KERNEL_LINES if "@triton.jit" in cell.source else CODE_LINES
        assert len(cell.source.splitlines()) <= limit, cell.id


@each_chapter
def test_paragraphs_are_short(path):
    for cell in text(read(path)):
        for paragraph in re.split(r"\n\s*\n|\n(?=[-|#])", cell.source):
            words = [word for word in paragraph.split() if word not in "|-"]
            assert len(words) < PARAGRAPH_WORDS, (cell.id, paragraph)


@each_chapter
def test_no_sentence_becomes_a_list(path):
    """Markdown takes a line that starts with "16." for the sixteenth point of a list."""
    for cell in text(read(path)):
        assert not re.search(r"(?m)^\d+[.)]\s", cell.source), cell.id


@each_chapter
def test_it_is_committed_without_outputs_and_with_ids_of_its_own(path):
    notebook = read(path)
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}
    assert not any(cell.outputs or cell.execution_count for cell in code(notebook))
    assert not any(cell.metadata.get("collapsed") or "widgets" in cell.metadata for cell in notebook.cells)
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", ident) for ident in ids)
    assert not any(re.fullmatch(r"[0-9a-f]{8}", ident) for ident in ids)  # what an editor makes up


@each_chapter
def test_links_lead_somewhere(path):
    """A lab's link goes to the learner's copy in work/, which `make lab` makes from labs/."""
    for cell in text(read(path)):
        for target in re.findall(r"\]\(([^)]+)\)", cell.source):
            assert not target.startswith("http"), "a chapter works without a network"
            file = (path.parent / target).resolve()
            work = ROOT / "work"
            assert (ROOT / "labs" / file.relative_to(work) if file.is_relative_to(work) else file).exists(), target


@each_chapter
def test_the_first_line_is_import_flashkit(path):
    assert code(read(path))[0].source.startswith("import flashkit  # first:")


@each_chapter
def test_it_opens_with_objectives_and_ends_with_takeaways_lab_and_sources(path):
    notebook = read(path)
    first, end = notebook.cells[0].source, "\n".join(cell.source for cell in notebook.cells[-3:-1])
    assert first.startswith("# ") and "you can\n- " in first and re.search(r"\b\d+ minutes\b", first)
    assert "Takeaways" in end and "ources" in end and "../work/" in end


@each_chapter
def test_its_last_cell_marks_it_as_read(path):
    last = read(path).cells[-1]
    assert last.cell_type == "code" and f'\nread("{path.stem[:2]}")' in last.source


@each_chapter
def test_the_time_of_its_sections_fits_the_time_at_the_top(path):
    sections = [line for cell in text(read(path)) for line in cell.source.splitlines() if re.match(r"## \d", line)]
    minutes = [int(match[1]) for line in sections if (match := re.search(r"\((\d+) minutes\)", line))]
    total = int(re.search(r"\b(\d+) minutes\b", read(path).cells[0].source)[1])
    assert len(minutes) >= len(sections) - 1 and 0.75 * total <= sum(minutes) <= total


@each_chapter
def test_it_asks_before_it_runs(path):
    """The rhythm: a question with a number to predict, then the run, then the explanation."""
    cells = read(path).cells
    asks = [at for at, cell in enumerate(cells) if "**Predict" in cell.source]
    assert len(asks) >= 5
    for at in asks:
        assert cells[at].cell_type == "markdown" and cells[at + 1].cell_type == "code", cells[at].id


@each_chapter
def test_every_question_of_its_boxes_is_asked_before_the_code_that_answers_it(path):
    cells, asked = read(path).cells, []
    for at, cell in enumerate(cells):
        if found := re.findall(r'\bpredict\("([^"]+)"\)', cell.source):
            asked += found
            assert "**Predict.**" in cells[at - 1].source and cells[at + 1].cell_type == "code", cell.id
    assert sorted(asked) == sorted(id for id in QUESTIONS if id.split(".")[0] == path.stem[:2])


@each_chapter
def test_a_figure_is_followed_by_a_sentence_of_what_it_shows(path):
    cells = read(path).cells
    for at, cell in enumerate(cells):
        if cell.cell_type == "code" and DRAWS.search(cell.source):
            assert cells[at + 1].source.startswith("The picture shows "), cell.id


def test_the_rule_for_figures_finds_the_figures():
    found = [cell.id for cell in code(read(ROOT / "notebooks" / "03_flash_forward.ipynb")) if DRAWS.search(cell.source)]
    assert found == ["row-figure", "walk-figure", "orders-figure", "watch-figure"]
