"""One file a question: each is run as `python -m benchmarks.<question>` from the root of the project."""
