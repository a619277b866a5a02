"""The task `answer`: extractive question answering, with or without unanswerable questions."""

from segue.tasks.answer.task import ANSWER as ANSWER
from segue.tasks.answer.task import Answer as Answer
from segue.tasks.answer.task import Answered as Answered
from segue.tasks.answer.task import AnswerSettings as AnswerSettings
from segue.tasks.answer.task import learn as learn
