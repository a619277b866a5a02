"""What others call the tensors and settings of these models: one reversible table a family.

`rules` is what a table is made of. Each other file is a family: `table` gives the rules for a config, `values` turns
the family's settings into those of `[model]`, `settings` turns a config into the family's. Nothing here reads a file.
"""
