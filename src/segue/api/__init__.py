"""The functions of `import segue`: one for each thing that the command line does, with Python values in and out.

Each module holds one function, or a few that belong together, and the values they return. All of them

- take a model as a name, a folder, or a loaded model (`models`),
- take texts and tables from memory or from files (`texts`, `tables`): a `str` is a text, a `Path` is a file,
- show their progress on standard error, unless `progress=False`, and tell it to `on_event` (`progress`),
- raise a `SegueError` that speaks of arguments, not of options of the command line (`errors`).

Nothing is computed here: the work is done by the levels below.
"""
