"""Evaluation of models: perplexity, task metrics, baselines, effective context length, speed and self-checks."""
