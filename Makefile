# Every target sets up what it needs: Python 3.11 or later, pip and make are enough.
#   make demo      real text, prepared, pretrained, evaluated, compared
#   make test      the tests
#   make test-long the slow tests
#   make check     lint, format and types
#   make parity    the comparisons with other libraries, in environments of their own
#   make pictures  computes the examples of docs/ and draws its pictures again
#   make bench     speed and memory against other libraries and the machine's limit; writes docs/benchmarks.md
#   make bench-quick  the middle shapes of that, printed only
#   make bench-finetuning  fine-tuning against another library's trainer; DATA is a folder with chnsenticorp and imdb
#   make clean     removes the environments

PYTHON ?= python3
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-long check parity pictures bench bench-quick bench-finetuning clean

demo: .venv/ready
	.venv/bin/segue demo

test: .venv/ready
	.venv/bin/python -m pytest -q -n auto --dist worksteal --ignore=tests/parity

test-long: .venv/ready
	.venv/bin/python -m pytest -q -m long --ignore=tests/parity

check: .venv/ready
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

parity: .venv-transformers5/ready .venv-transformers4/ready
	.venv-transformers5/bin/python -m pytest -q tests/parity/test_transformers5.py
	.venv-transformers4/bin/python -m pytest -q tests/parity/test_transformers4.py

pictures: .venv/ready
	.venv/bin/python docs/examples.py
	.venv/bin/python docs/pictures.py

bench: .venv/ready .venv-transformers5/ready .venv-transformers4/ready
	.venv-transformers5/bin/python -m benchmarks.encoder
	.venv-transformers5/bin/python -m benchmarks.pretraining
	.venv-transformers4/bin/python -m benchmarks.transformer_xl
	.venv-transformers5/bin/python -m benchmarks.peak_memory
	.venv/bin/python -m benchmarks.growth
	.venv/bin/python -m benchmarks.step_profile
	.venv-transformers4/bin/python -m benchmarks.generation --peer transformer-xl
	.venv-transformers5/bin/python -m benchmarks.generation --peer xlnet
	.venv/bin/python -m benchmarks.streaming
	.venv/bin/python -m benchmarks.eight_bits
	.venv/bin/python -m benchmarks.report

bench-quick: .venv/ready .venv-transformers5/ready .venv-transformers4/ready
	results=$$(mktemp -d) && trap 'rm -r "$$results"' EXIT && \
	.venv-transformers5/bin/python -m benchmarks.encoder --quick --results "$$results" && \
	.venv-transformers5/bin/python -m benchmarks.pretraining --quick --results "$$results" && \
	.venv-transformers4/bin/python -m benchmarks.transformer_xl --quick --results "$$results" && \
	.venv-transformers5/bin/python -m benchmarks.peak_memory --quick --results "$$results" && \
	.venv/bin/python -m benchmarks.growth --quick --results "$$results" && \
	.venv/bin/python -m benchmarks.step_profile --quick --results "$$results" && \
	.venv-transformers4/bin/python -m benchmarks.generation --peer transformer-xl --quick --results "$$results" && \
	.venv-transformers5/bin/python -m benchmarks.generation --peer xlnet --quick --results "$$results" && \
	.venv/bin/python -m benchmarks.streaming --quick --results "$$results" && \
	.venv/bin/python -m benchmarks.eight_bits --quick --results "$$results" && \
	.venv/bin/python -m benchmarks.report --print-only --results "$$results"

DATA ?= data

bench-finetuning: .venv/ready .venv-transformers5/ready
	.venv-transformers5/bin/python -m benchmarks.finetuning --data "$(DATA)"
	.venv-transformers5/bin/python -m benchmarks.finetuning --data "$(DATA)" --accuracy
	.venv/bin/python -m benchmarks.report

# One environment for the project, and one for each library that parity compares with: transformers 5 has no
# Transformer-XL any more, and 4.37.2 is the last version in which it runs.
KERNELS = hatch_build.py $(wildcard src/segue/model/kernels/*.cpp src/segue/model/kernels/*.h)

.venv/ready: pyproject.toml constraints.txt $(KERNELS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "segue needs Python 3.11 or later")'
	$(PYTHON) -m venv .venv
	.venv/bin/python $(PIP_INSTALL) -e '.[corpora,test,check,compare,pictures,hub,tune,export]'
	touch $@

# What these two do not install themselves comes from .venv: PyTorch is installed once.
TAKE_FROM_PROJECT = 'import sysconfig; print("import site; site.addsitedir(" + ascii(sysconfig.get_path("purelib")) + ")")'
WHERE_PACKAGES_ARE = 'import sysconfig; print(sysconfig.get_path("purelib"))'
define environment_beside
	$(PYTHON) -m venv --clear $(1)
	.venv/bin/python -c $(TAKE_FROM_PROJECT) > "$$($(1)/bin/python -c $(WHERE_PACKAGES_ARE))/project.pth"
endef

.venv-transformers5/ready: .venv/ready
	$(call environment_beside,.venv-transformers5)
	.venv-transformers5/bin/python $(PIP_INSTALL) transformers==5.22.2 accelerate==1.15.0
	touch $@

.venv-transformers4/ready: .venv/ready
	$(call environment_beside,.venv-transformers4)
	grep -v huggingface_hub constraints.txt > .venv-transformers4/constraints.txt  # it needs an older one
	.venv-transformers4/bin/python $(PIP_INSTALL:constraints.txt=.venv-transformers4/constraints.txt) transformers==4.37.2
	touch $@

clean:
	rm -rf .venv .venv-transformers5 .venv-transformers4
