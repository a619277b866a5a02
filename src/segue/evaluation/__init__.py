"""Measuring models: self-checks today."""
