# `make lab` and `make test` are all a reader needs. `make help` lists the rest.
# PYTHON=python3.12 chooses the Python that .venv is made with; TORCH_INDEX=URL chooses where torch comes from.
# LAB_ARGS is handed to JupyterLab; TEST_ARGS to pytest; ONLY names exercises or labs for the kill matrix.
PYTHON ?= python3
GPU_PYTHON ?= python3
LAB_ARGS ?=
TEST_ARGS ?=
ONLY ?=
LAST ?=
PYTHON_GIVEN := $(filter environment command%,$(origin PYTHON))
VENV_BIN := $(CURDIR)/.venv/bin
# nbgrader runs alembic by name, so the venv comes first on PATH
IN_VENV := PATH="$(VENV_BIN):$$PATH" $(VENV_BIN)/python
PYTEST := $(IN_VENV) -m pytest -n 2 --dist loadgroup

.DEFAULT_GOAL := help
.PHONY: help venv lab test test-slow lint release kill-matrix teach student-package gpu-test benchmark

help:  ## list these targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*##/\1 \t/' | expand -t 18

venv:  ## make or update .venv from constraints.txt (no work when it is right)
	@command -v "$(PYTHON)" >/dev/null || { echo "setup: no $(PYTHON) here. Install Python 3.11 to 3.13, or add PYTHON=/path/to/python to the make command." >&2; exit 1; }
	@PYTHON_GIVEN="$(PYTHON_GIVEN)" "$(PYTHON)" tools/setup_venv.py

lab: venv  ## open the course in JupyterLab; your copies of the labs are in work/
	@$(IN_VENV) -m tools.start_lab $(LAB_ARGS)

test: venv  ## everything a machine without a GPU can prove
	@$(PYTEST) $(TEST_ARGS)

test-slow: venv  ## all cases, other tritons, a fresh clone, the large class
	@$(PYTEST) -m slow --timeout 2400 $(TEST_ARGS)

lint: venv  ## ruff
	@$(IN_VENV) -m ruff check .

kill-matrix: venv  ## planted faults: caught by what, named as what (ONLY=03.heads for some)
	@$(IN_VENV) -m tests.labs.kill_matrix $(ONLY)

release: venv  ## teacher: make labs/ from solutions/ (never writes into work/)
	@$(IN_VENV) -m tools.release

teach: venv  ## teacher: JupyterLab with nbgrader's formgrader
	@$(IN_VENV) -m tools.start_lab --teach $(LAB_ARGS)

student-package: venv  ## teacher: dist/flashkit-students.zip, without solutions and tests (LAST=03: no later labs)
	@$(IN_VENV) -m tools.student_package $(LAST)

gpu-test:  ## on a GPU machine, with its own torch and triton (GPU_PYTHON=)
	@status=0; for part in gpu gpu.labs gpu.hopper; do $(GPU_PYTHON) -m tests.$$part || status=1; done; exit $$status

benchmark:  ## on a GPU machine: writes benchmarks/results/
	@$(GPU_PYTHON) -m benchmarks
