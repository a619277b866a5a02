"""The task `tag`: named entities in a text, or a class for each token."""

from segue.tasks.tag.task import INEXACT as INEXACT
from segue.tasks.tag.task import TAG as TAG
from segue.tasks.tag.task import Tag as Tag
from segue.tasks.tag.task import TagSettings as TagSettings
from segue.tasks.tag.task import learn as learn
