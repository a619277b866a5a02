"""`segue-lm-eval`: the command of lm-evaluation-harness with segue's models added.

segue-lm-eval run --model segue --model_args model=FOLDER --tasks TASK
"""

from importlib import import_module

from segue.cli.errors import ended


def main() -> None:
    """Run the console script."""
    raise SystemExit(ended(_evaluate))


def _evaluate() -> None:
    from segue.infer.harness import register

    register()
    import_module("lm_eval.__main__").cli_evaluate()


if __name__ == "__main__":
    main()
