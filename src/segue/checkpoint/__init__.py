"""Models on disk: a folder with a config and safetensors weights. No pickle, no code, no partial folders."""
