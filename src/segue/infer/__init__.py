"""Using trained models: generation."""
