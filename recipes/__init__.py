"""Recipes of the packaged models: their corpora and their training, as commands that anyone can run."""
