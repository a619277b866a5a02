"""Benchmarks, one file per question: each is run as `python -m benchmarks.<question>` from the root of the project."""
