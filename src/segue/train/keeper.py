"""Storage of the best weights of fine-tuning: in the run folder, in memory while that cannot be written, or
elsewhere."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from segue.checkpoint.card import Facts
from segue.errors import DataError, SegueError
from segue.tasks.folder import TaskModel, save_task_model
from segue.tasks.wide import Wide
from segue.train.distributed import rank

UNVALIDATED = "last"
"""Folder of weights that have not been validated."""

OUTCOME = ("results.json", "report.md", "report.html")
"""Files about the end of a run."""
Weights = dict[str, Tensor]


def bytes_of(model: nn.Module) -> int:
    """Return the size of the weights in bytes."""
    return sum(value.numel() * value.element_size() for value in model.state_dict().values())


def check_room(run: Path, size: int) -> None:
    """Raise DataError before training if the model would not fit on the disk: a new best model is written beside the
    old one."""
    free = shutil.disk_usage(run).free
    if free < 2 * size:
        raise DataError(
            f"{run} must have room for two copies of the model, {2 * size / 1e6:,.0f} MB; got {free / 1e6:,.0f} MB "
            "free. Free some space, or choose another --out."
        )


class Keeper:
    """The best weights of one run. Only the first process writes."""

    def __init__(self, made: TaskModel, run: Path, *, tokenizer: Path) -> None:
        self.made, self.run, self.tokenizer = made, run, tokenizer
        self._held: tuple[int, Facts, Wide | None, Weights] | None = None
        """Step, metrics, n-grams and weights that could not be written."""
        self._saved_step: int | None = None

    def keep(self, step: int, facts: Facts, wide: Wide | None = None) -> str | None:
        """Save the current weights as the best, with these n-grams; return why they could not be written, or None."""
        problem = self._save(self.run / "best", facts, wide)
        if problem is None:
            if self._saved_step is None:
                self._remove_older()
            self._held, self._saved_step = None, step
        else:
            weights = {name: value.detach().cpu().clone() for name, value in self.made.model.state_dict().items()}
            self._held = (step, facts, wide, weights)
        return problem

    def retry(self) -> str | None:
        """Write what could not be written before, if there is any; return why it failed again, or None."""
        if self._held is None:
            return None
        step, facts, wide, weights = self._held
        with self._with(weights):
            problem = self._save(self.run / "best", facts, wide)
        if problem is None:
            self._held, self._saved_step = None, step
        return problem

    def settle(self) -> Path:
        """Return the folder of the best model at the end of a run. If the run folder cannot be written, the model goes
        elsewhere."""
        problem = self.retry()
        if self._held is None:
            return self.run / "best"
        step, facts, wide, weights = self._held
        with self._with(weights):
            place = self._elsewhere(facts, wide)
        if place is None:
            raise DataError(
                f"{self.run} must have room for the model; got {problem}, and {tempfile.gettempdir()} has none either. "
                f"The weights of step {step} are lost{self._but_saved()}. Free some space, and start the run again."
            )
        return place

    def keep_unvalidated(self) -> Path:
        """Save the current weights, which have not been validated, and return their folder."""
        place = self.run / UNVALIDATED
        problem = self._save(place, Facts())
        if problem is None:
            return place
        other = self._elsewhere(Facts())
        if other is None:
            raise DataError(
                f"{self.run} must have room for the model; got {problem}, and {tempfile.gettempdir()} has none either. "
                "The weights are lost. Free some space, and start the run again."
            )
        return other

    def rescue(self) -> str:
        """Save what is not saved after a file could not be written, and return a sentence that says where the weights
        are."""
        if self._held is None and self._saved_step is not None:
            return f"The best model, that of step {self._saved_step}, is in {self.run / 'best'}."
        try:
            if self._held is not None:
                step = self._held[0]
                return f"The best model, that of step {step}, is in {self.settle()}."
            return f"The weights, which no validation has judged, are in {self.keep_unvalidated()}."
        except DataError as error:
            return str(error)

    def _remove_older(self) -> None:
        """Remove what an unfinished run of the same command left beside the best model, which was now replaced."""
        if rank() == 0:
            for name in OUTCOME:
                (self.run / name).unlink(missing_ok=True)
            shutil.rmtree(self.run / UNVALIDATED, ignore_errors=True)

    def _but_saved(self) -> str:
        return f"; those of step {self._saved_step} are in {self.run / 'best'}" if self._saved_step is not None else ""

    def _elsewhere(self, facts: Facts, wide: Wide | None = None) -> Path | None:
        """Save the model in a new folder for temporary files, often on another disk; return None if that fails too."""
        try:
            place = Path(tempfile.mkdtemp(prefix="segue-kept-")) / "model"
        except OSError:
            return None
        if self._save(place, facts, wide) is None:
            return place
        shutil.rmtree(place.parent, ignore_errors=True)
        return None

    def _save(self, place: Path, facts: Facts, wide: Wide | None = None) -> str | None:
        if rank() != 0:
            return None
        try:
            save_task_model(replace(self.made, wide=wide), place, tokenizer=self.tokenizer, facts=facts)
        except (OSError, SegueError) as error:
            return str(error)
        return None

    @contextmanager
    def _with(self, weights: Weights) -> Iterator[None]:
        """Load other weights into the model for the duration of a block."""
        model = self.made.model
        now = {name: value.detach().clone() for name, value in model.state_dict().items()}
        model.load_state_dict(weights)
        try:
            yield
        finally:
            model.load_state_dict(now)
