"""`segue plan`: the requirements of a pretraining run."""

from rich.console import Console

from segue.api.catalogue import only_for_segue
from segue.cli.console import duration, progress_console, say
from segue.cli.options import ConfigArgument, OverridesArgument
from segue.config import Config


def print_plan(config: Config) -> None:
    """Print parameters, memory and time of a run."""
    from segue.api.pretrain import plan as planned  # imports torch, which completion and mistakes need not wait for

    assert config.train is not None
    console = Console(highlight=False, emoji=False)
    say(progress_console(), "Measuring a few updates with random ids ...", style="dim")
    needed = planned(config)
    console.print(f"parameters  {needed.parameters:,}")
    console.print(f"tokens      {needed.tokens:,} in {config.train.steps:,} steps")
    if why := only_for_segue(config.model):
        say(console, f"format      segue only: {why}", hang=12)
    if needed.measured_memory is None or needed.seconds_per_step is None:
        console.print(
            f"memory      {needed.formula_memory / 2**30:.1f} GiB by formula; more than is free, so not measured"
        )
        return
    console.print(f"memory      {needed.measured_memory / 2**30:.2f} GiB (measured)")
    console.print(f"step        {needed.seconds_per_step:.3f} s (measured)")
    console.print(f"time        {duration(needed.seconds_per_step * config.train.steps)}")


def plan(config: ConfigArgument, overrides: OverridesArgument = None) -> None:
    """Measure what a pretraining run needs: parameters, memory and time.

    Runs a few updates on random token ids and writes nothing.

    \b
    Example:
      segue plan small-xlnet data.store=corpus model.width=256
    """
    from segue.api.configs import chosen_config

    print_plan(chosen_config(config, settings=overrides))
