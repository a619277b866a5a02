"""The functions of `import segue`: one for each command of the command line, with Python values in and out.

Each module contains one function, or a few that belong together, and the values they return. All of them

- take a model as a name, a folder, or a loaded model (`models`),
- take texts and tables from memory or from files (`texts`, `tables`): a `str` is a text, a `Path` is a file,
- show their progress on standard error, unless `progress=False`, and report it to `on_event` (`progress`),
- raise a `SegueError` whose message names arguments, not command-line options (`errors`).

Nothing is computed here: the packages below do the work.
"""
