# Everything a fresh machine needs: `make demo` runs the main job, `make test` the tests.
# Each target says what it does and does nothing twice.

PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/.installed
MODEL := resnet50
INPUT := 8x3x224x224
# Seconds to look for a plan.
LIMIT := 60

# Hundreds of processes of the tests would compile all sources, each for itself.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: release bench-versions coverage
.PHONY: setup demo test test-fast check lint types tests docs wheel screenshots claims claims-again gpu gpu-wheels clean

setup: $(STAMP)

$(STAMP): pyproject.toml lab/pyproject.toml constraints.txt
	@echo "== setting up .venv (once; torch takes most of the time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check \
		-c constraints.txt -e '.[torch,dev]' -e lab
	@$(BIN)/python -c 'import pathlib, sysconfig; \
		pathlib.Path(sysconfig.get_path("purelib"), "papers.pth").write_text("$(CURDIR)\n")'
	@echo "== compiling all kernels (once)"
	@$(BIN)/offcert compile
	@touch $(STAMP)

demo: out/report.md
	@echo "== done; see out/"
	@cat out/report.md

out/problem.json: $(STAMP)
	@mkdir -p out
	@echo "== capturing a training step of $(MODEL) at $(INPUT) on fake tensors, V100-PCIe roofline"
	@$(BIN)/offcert profile $(MODEL) --input $(INPUT) --hardware v100-pcie -o $@

out/certificate.json: out/problem.json
	@echo "== looking $(LIMIT) seconds for a plan at 25 % memory that moves and recomputes, and for a proof of how short one can be"
	@$(BIN)/offcert certify $< --memory 25% --recompute any --time-limit $(LIMIT) --target-gap 0.1% --seed 0 -o $@

out/verification.json: out/certificate.json
	@echo "== verifying the certificate with independent code"
	@$(BIN)/offcert verify $<
	@$(BIN)/offcert verify $< --json > $@.part && mv $@.part $@

out/plan.png: out/certificate.json
	@echo "== drawing the plan"
	@$(BIN)/offcert plot $< -o $@

out/training.json: out/certificate.json
	@echo "== executing that very plan: one training step beside a plain one"
	@$(BIN)/offcert train $< --steps 1 --json > $@.part && mv $@.part $@

out/report.md: out/certificate.json out/verification.json out/plan.png out/training.json
	@$(BIN)/python benchmarks/demonstration.py out > $@.part && mv $@.part $@

check: lint types

lint: $(STAMP)
	@echo "== ruff"
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(STAMP)
	@echo "== mypy"
	@$(BIN)/mypy

tests: $(STAMP)
	@echo "== tests"
	@$(BIN)/python -m pytest -n 2 --dist worksteal

# A contributor's minute: no journey, nothing that loads PyTorch, nothing that is marked slow.
LAYERS := tests/facts tests/oracles tests/forgeries
LOADS_TORCH := ^(import|from) (torch|transformers|offcert\.(runtime|training)|support\.(runtime|networks))
FAST := $(LAYERS) $(addprefix --ignore-glob=*/,runtime campaign engines hunts papers) \
	$(addprefix --ignore=,$(shell grep -rlE --include='test_*.py' '$(LOADS_TORCH)' $(LAYERS)))

test-fast: lint
	@echo "== tests that take no time"
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" $(FAST)

# Types beside tests: neither keeps two processors busy all the time.
test: lint
	@$(MAKE) --no-print-directory -j 2 types tests

docs: $(STAMP)
	@echo "== documentation, from docs/ and the docstrings"
	@$(BIN)/python -m sphinx -b html -q -W --keep-going -j auto -d out/docs-cache docs out/docs
	@echo "== done; see out/docs/index.html"

wheel: $(STAMP)
	@echo "== wheel and source distribution, installed into an empty environment, and the README run there"
	@$(BIN)/python benchmarks/wheel.py -o out/wheel.json

# Needs a Chromium (Debian: chromium-headless-shell); what it makes is in the repository.
screenshots: $(STAMP)
	@echo "== pictures of three report pages, for docs/pages.md; minutes"
	@$(BIN)/python docs/_ext/screenshots.py

claims: $(STAMP)
	@echo "== docs/claims.md against its evidence: a line a claim; minutes"
	@$(BIN)/python benchmarks/claims_check.py

claims-again: $(STAMP)
	@echo "== the same, with everything made again first; hours"
	@$(BIN)/python benchmarks/claims_check.py --again

# Needs no .venv where python3 has PyTorch, and no GPU: then everything runs on the simulated device.
# PART and NETWORK choose some, as in `make gpu PART=train NETWORK=gpt2-medium`; MORE is for options.
gpu:
	@python3 benchmarks/gpu.py $(PART:%=--part %) $(NETWORK:%=--network %) $(MORE)

# For a machine that has PyTorch and reaches nothing: to be carried there, and found by `make gpu`.
# Searches, which need more, run elsewhere.
gpu-wheels: $(STAMP)
	@mkdir -p out/wheels
	@$(BIN)/python -m pip download -qq --disable-pip-version-check --only-binary=:all: -d out/wheels \
		--python-version 3.12 --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
		-c constraints.txt numba transformers pytest
	@du -sh out/wheels

# Both packages as somebody meets them who installs them; says which tag to set.
release: $(STAMP)
	@$(BIN)/python benchmarks/release.py

# FROM is a tag or a commit, as in `make bench-versions FROM=v0.1.0`; the latest tag without.
bench-versions: $(STAMP)
	@mkdir -p out
	@$(BIN)/python benchmarks/between_commits.py $(FROM) -o out/between-commits.json

# Of the tests that take no time. A loop in another thread cannot be ended while a tracer counts lines.
coverage: $(STAMP)
	@mkdir -p out
	@$(BIN)/python -m coverage run -m pytest -m "not slow" $(FAST) \
		--deselect tests/facts/certification/test_watchdog.py::test_in_another_thread_a_loop_ends_too
	@$(BIN)/python -m coverage report > out/coverage.txt
	@tail -n 1 out/coverage.txt
	@echo "== lines that no such test reaches are in out/coverage.txt"

clean:
	rm -rf .venv out
