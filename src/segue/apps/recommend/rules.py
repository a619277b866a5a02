"""Business rules: the file `rules.json` in the folder of a recommender, which applies to every list.

    {"boost": {"new": 0.7}, "first": ["tea-mint"], "without_tags": ["sold-out"], "at_most": {"coffee": 2}}

In: the file, and the wish of a request. Out: the wish combined with the rules. A wish can add rules, but not relax
them. Lists of similar items obey those that exclude or limit items.
"""

import json
from pathlib import Path

from pydantic import ValidationError

from segue.apps.recommend.ranking import Rules, Wish
from segue.apps.recommend.store import RULES
from segue.checkpoint.files import read_small
from segue.errors import CheckpointError, ConfigError

LARGEST = 1 << 20
"""Maximum size of the file in bytes."""


def read_rules(folder: Path) -> Rules:
    """Return the rules of a recommender; empty rules if there is no file."""
    path = folder / RULES
    if not path.is_file():
        return Rules()
    try:
        return Rules.model_validate(json.loads(read_small(path, limit=LARGEST)))
    except (CheckpointError, OSError, ValueError, RecursionError) as error:
        said = "lists or objects nested too deeply" if isinstance(error, RecursionError) else str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            said = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise ConfigError(
            f"{path} must have rules as JSON: boost, boost_items, first, without_items, without_tags, most_of_tag, "
            f"at_most, least_new; got {said[:200]}. Correct it, or remove the file."
        ) from None


def with_rules(rules: Rules, wish: Wish) -> Wish:
    """Return a wish combined with the rules."""
    limits = [one for one in (rules.most_of_tag, wish.most_of_tag) if one is not None]
    least = [one for one in (rules.least_new, wish.least_new) if one is not None]
    return wish.model_copy(
        update={
            "boost": _summed(rules.boost, wish.boost),
            "boost_items": _summed(rules.boost_items, wish.boost_items),
            "first": list(dict.fromkeys([*rules.first, *wish.first])),
            "without_items": [*rules.without_items, *wish.without_items],
            "without_tags": [*rules.without_tags, *wish.without_tags],
            "most_of_tag": min(limits) if limits else None,
            "least_new": max(least) if least else None,
            "at_most": {
                tag: min(one[tag] for one in (rules.at_most, wish.at_most) if tag in one)
                for tag in {**rules.at_most, **wish.at_most}
            },
        }
    )


def _summed(first: dict[str, float], second: dict[str, float]) -> dict[str, float]:
    return {name: first.get(name, 0.0) + second.get(name, 0.0) for name in {**first, **second}}
