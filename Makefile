# Every target sets up what it needs: Python 3.11 or later, pip and make are enough.
#   make demo      real text, prepared, pretrained, evaluated, compared
#   make test      the tests
#   make test-long the slow ones, which make test leaves out: hostile commands for half an hour (FUZZ_SECONDS=60 for less), all
#                  examples of the property tests, and more
#   make soak      the server under load for half an hour, ten minutes of it overload: thousands of sessions, of requests made from
#                  its description, of kills (SOAK_SECONDS=60 for a tenth of all that)
#   make browser   the page of segue serve in Chromium, which must be installed
#   make check     lint, format and types
#   make parity    the comparisons with other libraries, in environments of their own
#   make wheel     builds the wheel and uses it, in an environment with the required packages alone
#   make docs      builds the documentation as a site, in English and Chinese, into build/site, and checks its links
#   make pictures  computes the examples of docs/ and draws its pictures again
#   make bench     speed and memory against other libraries and the machine's limit; writes docs/benchmarks.md and the
#                  figures that README and docs/performance.md quote
#   make bench-quick  the middle shapes of that, printed only
#   make bench-serving  the part of it that is about the server: isolation, load, long texts, beside llama.cpp and transformers
#   make clean     removes the environments

# Where this is set, every process that tests start compiles segue, and every worker rewrites all tests, again.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
# Modules are compiled when they are first imported: compiling all of them is a third of the set-up.
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

.PHONY: demo test compiled test-long browser soak check parity parity-transformers5 parity-transformers4 parity-lm-eval parity-environments wheel docs pictures bench bench-quick bench-serving clean

demo: .venv/ready
	.venv/bin/segue demo

# Half as many processes again as cores: a sixth of the time of tests is waiting for servers, leases and kills.
WORKERS ?= $$(.venv/bin/python -c 'import os; print(max(2, (os.cpu_count() or 1) * 3 // 2))')
TESTS = .venv/bin/python -m pytest -q -n $(WORKERS) --dist worksteal --ignore=tests/parity

test: .venv/ready
	$(TESTS) --ignore=tests/browser

# Imports what the tests import, so that it is compiled once: in a fresh clone, processes that start together would each
# compile all of it.
compiled: .venv/ready
	.venv/bin/python -m pytest -qq --collect-only --ignore=tests/parity --ignore=tests/browser >.venv/collected || { cat .venv/collected; exit 1; }

test-long: .venv/ready
	$(TESTS) -m long
	ALL_EXAMPLES=1 $(TESTS) -m hypothesis --ignore=tests/browser

soak: .venv/ready
	.venv/bin/python -m pytest -q -m long tests/serve

browser: .venv/ready
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  { echo "make browser needs Chromium; none is installed. On Debian: apt-get install chromium fonts-wqy-microhei" >&2; exit 1; }
	.venv/bin/python -m pytest -q tests/browser

check: .venv/ready
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

parity: parity-transformers5 parity-transformers4 parity-lm-eval

parity-environments: .venv-transformers5/ready .venv-transformers4/ready .venv-lm-eval/ready

parity-transformers5: .venv-transformers5/ready
	.venv-transformers5/bin/python -m pytest -q tests/parity/test_transformers5.py tests/parity/test_transformers5_heads.py tests/parity/test_transformers5_bert_gpt.py tests/parity/test_written_folders.py tests/parity/test_tokenisers.py tests/parity/test_bert_and_gpt2.py tests/parity/test_bert_and_gpt2_tokenisers.py

parity-transformers4: .venv-transformers4/ready
	.venv-transformers4/bin/python -m pytest -q tests/parity/test_transformers4.py tests/parity/test_written_folders.py tests/parity/test_tokenisers.py

parity-lm-eval: .venv-lm-eval/ready
	.venv-lm-eval/bin/python -m pytest -q tests/parity/test_lm_eval.py tests/parity/test_lm_eval_server.py

wheel: .venv/ready
	.venv/bin/python .ci/wheel.py

docs: .venv-docs/ready
	.venv-docs/bin/python docs/site.py
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

pictures: .venv/ready
	.venv/bin/python docs/examples.py
	.venv/bin/python docs/pictures.py

# On two cores an hour, of which the server takes half, and two and a half hours more with DATA, a folder with chnsenticorp and imdb (the sums of what
# the results say they took). What has a result of the code as it is now is not measured again: stop and go on at will.
DATA ?= data

bench: .venv/ready .venv-transformers5/ready .venv-transformers4/ready .venv-llama/ready
	.venv/bin/python -m benchmarks.everything --data "$(DATA)"

bench-quick: .venv/ready .venv-transformers5/ready .venv-transformers4/ready .venv-llama/ready
	.venv/bin/python -m benchmarks.everything --quick --data "$(DATA)"

bench-serving: .venv/ready .venv-transformers5/ready .venv-llama/ready
	.venv/bin/python -m benchmarks.serving
	.venv/bin/python -m benchmarks.report

# One environment for the project, and one for each library that parity compares with: transformers 5 has no
# Transformer-XL any more, and 4.37.2 is the last version in which it runs.
KERNELS = hatch_build.py $(wildcard src/segue/model/kernels/*.cpp src/segue/model/kernels/*.h)

.venv/ready: pyproject.toml constraints.txt $(KERNELS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "segue needs Python 3.11 or later")'
	$(PYTHON) -m venv .venv
	.venv/bin/python $(PIP_INSTALL) -e '.[corpora,test,check,pictures,hub,tokenizers,tune,export,serve,redis,postgres,faiss,browser]'
	touch $@

.venv-docs/ready: constraints.txt
	$(PYTHON) -m venv --clear .venv-docs
	.venv-docs/bin/python $(PIP_INSTALL) mkdocs-material 'mkdocstrings[python]' mkdocs-static-i18n
	touch $@

# What these do not install themselves comes from .venv: PyTorch is installed once.
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

.venv-llama/ready: .venv/ready
	$(call environment_beside,.venv-llama)
	.venv-llama/bin/python $(PIP_INSTALL) --no-deps xllamacpp==2026.10.11549 gguf==0.19.0
	touch $@

.venv-transformers4/ready: .venv/ready
	$(call environment_beside,.venv-transformers4)
	grep -v -e huggingface_hub -e tokenizers constraints.txt > .venv-transformers4/constraints.txt  # it needs older ones
	.venv-transformers4/bin/python $(PIP_INSTALL:constraints.txt=.venv-transformers4/constraints.txt) transformers==4.37.2
	touch $@

.venv-lm-eval/ready: .venv/ready
	$(call environment_beside,.venv-lm-eval)
	.venv-lm-eval/bin/python $(PIP_INSTALL) lm-eval==0.4.13 tenacity aiohttp
	touch $@

clean:
	rm -rf .venv .venv-transformers5 .venv-transformers4 .venv-lm-eval .venv-llama
