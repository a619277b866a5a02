"""Transformer-XL and XLNet, from raw text to a served model.

There is one function for each command of the command line (docs/python.md shows each in a few lines):

    sample, samples             write a sample corpus; list the sample corpora
    prepare                     text files -> a store of token ids, with its tokeniser
    pretrain, plan              a config and a store -> a run with its best model; what the run needs
    plot                        loss curves of runs, as an image
    finetune, task_kinds        a model and labelled examples -> a model for a task; list the tasks
    tune                        search for the best fine-tuning settings
    run_study, studies          compare variants at equal budgets, over several seeds; list the built-in studies
    load_finetuned, predict     predictions of a fine-tuned model for texts, rows, tables, files
    load, open                  a language model as an nn.Module; as a session that reads, writes, forks and saves
    score, embed                texts -> log-probabilities; texts -> an array of vectors
    score_each, embed_each, predict_each        the same row by row, in constant memory
    evaluate                    a model and a store -> perplexity, and bits per token, character and byte
    evaluate_task               a fine-tuned model and labelled examples -> the metrics of its task
    evaluate_pairs, evaluate_context, evaluate_speed    minimal pairs; effective context length; time per token
    compare                     models on the same data, with confidence intervals of their differences
    generate, infill            continue a prompt; fill gaps in a text
    attention, explain_text     attention by head and term; the share of each term, and the loss without it
    explain_answer, save_explanation    the words behind a prediction; explanations as a web page
    convert, export, inspect    checkpoints of other libraries; ONNX and torch.export; describe a file or folder
    package, push               publish a model: as a small folder; on the Hugging Face Hub
    learn_desk, open_desk, describe_desk    questions and answers -> a desk that answers, or hands over to people
    improve_desk, roll_back_desk, copy_desk, person_in_desk     retrain, return to an earlier model, back up, privacy
    learn_monitor, open_monitor, describe_monitor   labelled texts -> a monitor of sentiment, topics and entities
    feed_monitor, export_monitor, report_monitor    read texts and raise alarms; export tables; daily reports
    trends_in_monitor, alarms_in_monitor, alarm_in_monitor, names_in_monitor    figures, alarms and new names
    improve_monitor, roll_back_monitor, copy_monitor, person_in_monitor     as for a desk
    learn_recommender, open_recommender, describe_recommender   events and items -> a recommender
    recommend, compare_recommenders     items for a user, with reasons; two models on replayed events
    improve_recommender, roll_back_recommender, copy_recommender, person_in_recommender     as for a desk
    models, named, doctor       list named models and configs; the config of a published model; check a model

Use `help(segue.score)` for help on a function. Torch is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from segue.api.catalogue import models as models
    from segue.api.compare import compare as compare
    from segue.api.convert import convert as convert
    from segue.api.convert import export as export
    from segue.api.doctor import doctor as doctor
    from segue.api.embed import embed as embed
    from segue.api.embed import embed_each as embed_each
    from segue.api.evaluate import Evaluation as Evaluation
    from segue.api.evaluate import evaluate as evaluate
    from segue.api.evaluate_context import evaluate_context as evaluate_context
    from segue.api.evaluate_pairs import evaluate_pairs as evaluate_pairs
    from segue.api.evaluate_speed import evaluate_speed as evaluate_speed
    from segue.api.evaluate_task import evaluate_task as evaluate_task
    from segue.api.explain import attention as attention
    from segue.api.explain import explain_answer as explain_answer
    from segue.api.explain import explain_text as explain_text
    from segue.api.explain import save_explanation as save_explanation
    from segue.api.finetune import FinetuneResult as FinetuneResult
    from segue.api.finetune import finetune as finetune
    from segue.api.finetune import task_kinds as task_kinds
    from segue.api.generate import generate as generate
    from segue.api.generate import infill as infill
    from segue.api.hub import package as package
    from segue.api.hub import push as push
    from segue.api.inspect import inspect as inspect
    from segue.api.models import load as load
    from segue.api.models import open as open
    from segue.api.plot import plot as plot
    from segue.api.predict import FinetunedModel as FinetunedModel
    from segue.api.predict import load_finetuned as load_finetuned
    from segue.api.predict import predict as predict
    from segue.api.predict import predict_each as predict_each
    from segue.api.prepare import prepare as prepare
    from segue.api.pretrain import Run as Run
    from segue.api.pretrain import plan as plan
    from segue.api.pretrain import pretrain as pretrain
    from segue.api.progress import Progress as Progress
    from segue.api.sample import sample as sample
    from segue.api.sample import samples as samples
    from segue.api.score import score as score
    from segue.api.score import score_each as score_each
    from segue.api.study import StudyResult as StudyResult
    from segue.api.study import run_study as run_study
    from segue.api.study import studies as studies
    from segue.api.tune import Study as Study
    from segue.api.tune import tune as tune
    from segue.apps.desk.interface import DeskReport as DeskReport
    from segue.apps.desk.interface import copy_desk as copy_desk
    from segue.apps.desk.interface import describe_desk as describe_desk
    from segue.apps.desk.interface import improve_desk as improve_desk
    from segue.apps.desk.interface import learn_desk as learn_desk
    from segue.apps.desk.interface import open_desk as open_desk
    from segue.apps.desk.interface import person_in_desk as person_in_desk
    from segue.apps.desk.interface import roll_back_desk as roll_back_desk
    from segue.apps.desk.model import DeskModel as DeskModel
    from segue.apps.monitor.interface import MonitorReport as MonitorReport
    from segue.apps.monitor.interface import copy_monitor as copy_monitor
    from segue.apps.monitor.interface import describe_monitor as describe_monitor
    from segue.apps.monitor.interface import export_monitor as export_monitor
    from segue.apps.monitor.interface import feed_monitor as feed_monitor
    from segue.apps.monitor.interface import improve_monitor as improve_monitor
    from segue.apps.monitor.interface import learn_monitor as learn_monitor
    from segue.apps.monitor.interface import open_monitor as open_monitor
    from segue.apps.monitor.interface import person_in_monitor as person_in_monitor
    from segue.apps.monitor.interface import report_monitor as report_monitor
    from segue.apps.monitor.interface import roll_back_monitor as roll_back_monitor
    from segue.apps.monitor.model import MonitorModel as MonitorModel
    from segue.apps.monitor.settings import MonitorSettings as MonitorSettings
    from segue.apps.monitor.views import alarm_in_monitor as alarm_in_monitor
    from segue.apps.monitor.views import alarms_in_monitor as alarms_in_monitor
    from segue.apps.monitor.views import names_in_monitor as names_in_monitor
    from segue.apps.monitor.views import trends_in_monitor as trends_in_monitor
    from segue.apps.recommend.interface import RecommenderReport as RecommenderReport
    from segue.apps.recommend.interface import compare_recommenders as compare_recommenders
    from segue.apps.recommend.interface import copy_recommender as copy_recommender
    from segue.apps.recommend.interface import describe_recommender as describe_recommender
    from segue.apps.recommend.interface import improve_recommender as improve_recommender
    from segue.apps.recommend.interface import learn_recommender as learn_recommender
    from segue.apps.recommend.interface import open_recommender as open_recommender
    from segue.apps.recommend.interface import person_in_recommender as person_in_recommender
    from segue.apps.recommend.interface import recommend as recommend
    from segue.apps.recommend.interface import roll_back_recommender as roll_back_recommender
    from segue.apps.recommend.model import Recommender as Recommender
    from segue.apps.recommend.settings import RecommenderSettings as RecommenderSettings
    from segue.data.store import Store as Store
    from segue.data.tables import TableSettings as TableSettings
    from segue.errors import SegueError as SegueError
    from segue.explain.faithful import WordReport as WordReport
    from segue.explain.report import Explanation as Explanation
    from segue.explain.scores import AttentionReading as AttentionReading
    from segue.explain.scores import AttentionScores as AttentionScores
    from segue.infer.sampling import SamplingSettings as SamplingSettings
    from segue.infer.score_rows import TextScore as TextScore
    from segue.infer.score_rows import TokenScore as TokenScore
    from segue.infer.session import Session as Session
    from segue.infer.text_model import TextModel as TextModel
    from segue.model import Batch as Batch
    from segue.model import LanguageModel as LanguageModel
    from segue.model import Memory as Memory
    from segue.model.named import named as named

_HOME = {
    "AttentionReading": "segue.explain.scores",
    "AttentionScores": "segue.explain.scores",
    "Batch": "segue.model",
    "DeskModel": "segue.apps.desk.model",
    "DeskReport": "segue.apps.desk.interface",
    "Evaluation": "segue.api.evaluate",
    "Explanation": "segue.explain.report",
    "FinetuneResult": "segue.api.finetune",
    "FinetunedModel": "segue.api.predict",
    "LanguageModel": "segue.model",
    "Memory": "segue.model",
    "MonitorModel": "segue.apps.monitor.model",
    "MonitorReport": "segue.apps.monitor.interface",
    "MonitorSettings": "segue.apps.monitor.settings",
    "Progress": "segue.api.progress",
    "Recommender": "segue.apps.recommend.model",
    "RecommenderReport": "segue.apps.recommend.interface",
    "RecommenderSettings": "segue.apps.recommend.settings",
    "Run": "segue.api.pretrain",
    "SamplingSettings": "segue.infer.sampling",
    "SegueError": "segue.errors",
    "Session": "segue.infer.session",
    "Store": "segue.data.store",
    "Study": "segue.api.tune",
    "StudyResult": "segue.api.study",
    "TableSettings": "segue.data.tables",
    "TextModel": "segue.infer.text_model",
    "TextScore": "segue.infer.score_rows",
    "TokenScore": "segue.infer.score_rows",
    "WordReport": "segue.explain.faithful",
    "alarm_in_monitor": "segue.apps.monitor.views",
    "alarms_in_monitor": "segue.apps.monitor.views",
    "attention": "segue.api.explain",
    "compare": "segue.api.compare",
    "compare_recommenders": "segue.apps.recommend.interface",
    "convert": "segue.api.convert",
    "copy_desk": "segue.apps.desk.interface",
    "copy_monitor": "segue.apps.monitor.interface",
    "copy_recommender": "segue.apps.recommend.interface",
    "describe_desk": "segue.apps.desk.interface",
    "describe_monitor": "segue.apps.monitor.interface",
    "describe_recommender": "segue.apps.recommend.interface",
    "doctor": "segue.api.doctor",
    "embed": "segue.api.embed",
    "embed_each": "segue.api.embed",
    "evaluate": "segue.api.evaluate",
    "evaluate_context": "segue.api.evaluate_context",
    "evaluate_pairs": "segue.api.evaluate_pairs",
    "evaluate_speed": "segue.api.evaluate_speed",
    "evaluate_task": "segue.api.evaluate_task",
    "explain_answer": "segue.api.explain",
    "explain_text": "segue.api.explain",
    "export": "segue.api.convert",
    "export_monitor": "segue.apps.monitor.interface",
    "feed_monitor": "segue.apps.monitor.interface",
    "finetune": "segue.api.finetune",
    "generate": "segue.api.generate",
    "improve_desk": "segue.apps.desk.interface",
    "improve_monitor": "segue.apps.monitor.interface",
    "improve_recommender": "segue.apps.recommend.interface",
    "infill": "segue.api.generate",
    "inspect": "segue.api.inspect",
    "learn_desk": "segue.apps.desk.interface",
    "learn_monitor": "segue.apps.monitor.interface",
    "learn_recommender": "segue.apps.recommend.interface",
    "load": "segue.api.models",
    "load_finetuned": "segue.api.predict",
    "models": "segue.api.catalogue",
    "named": "segue.model.named",
    "names_in_monitor": "segue.apps.monitor.views",
    "open": "segue.api.models",
    "open_desk": "segue.apps.desk.interface",
    "open_monitor": "segue.apps.monitor.interface",
    "open_recommender": "segue.apps.recommend.interface",
    "package": "segue.api.hub",
    "person_in_desk": "segue.apps.desk.interface",
    "person_in_monitor": "segue.apps.monitor.interface",
    "person_in_recommender": "segue.apps.recommend.interface",
    "plan": "segue.api.pretrain",
    "plot": "segue.api.plot",
    "predict": "segue.api.predict",
    "predict_each": "segue.api.predict",
    "prepare": "segue.api.prepare",
    "pretrain": "segue.api.pretrain",
    "push": "segue.api.hub",
    "recommend": "segue.apps.recommend.interface",
    "report_monitor": "segue.apps.monitor.interface",
    "roll_back_desk": "segue.apps.desk.interface",
    "roll_back_monitor": "segue.apps.monitor.interface",
    "roll_back_recommender": "segue.apps.recommend.interface",
    "run_study": "segue.api.study",
    "sample": "segue.api.sample",
    "samples": "segue.api.sample",
    "save_explanation": "segue.api.explain",
    "score": "segue.api.score",
    "score_each": "segue.api.score",
    "studies": "segue.api.study",
    "task_kinds": "segue.api.finetune",
    "trends_in_monitor": "segue.apps.monitor.views",
    "tune": "segue.api.tune",
}
"""Module of each public name, imported on first use."""

__all__ = [
    "AttentionReading",
    "AttentionScores",
    "Batch",
    "DeskModel",
    "DeskReport",
    "Evaluation",
    "Explanation",
    "FinetuneResult",
    "FinetunedModel",
    "LanguageModel",
    "Memory",
    "MonitorModel",
    "MonitorReport",
    "MonitorSettings",
    "Progress",
    "Recommender",
    "RecommenderReport",
    "RecommenderSettings",
    "Run",
    "SamplingSettings",
    "SegueError",
    "Session",
    "Store",
    "Study",
    "StudyResult",
    "TableSettings",
    "TextModel",
    "TextScore",
    "TokenScore",
    "WordReport",
    "__version__",
    "alarm_in_monitor",
    "alarms_in_monitor",
    "attention",
    "compare",
    "compare_recommenders",
    "convert",
    "copy_desk",
    "copy_monitor",
    "copy_recommender",
    "describe_desk",
    "describe_monitor",
    "describe_recommender",
    "doctor",
    "embed",
    "embed_each",
    "evaluate",
    "evaluate_context",
    "evaluate_pairs",
    "evaluate_speed",
    "evaluate_task",
    "explain_answer",
    "explain_text",
    "export",
    "export_monitor",
    "feed_monitor",
    "finetune",
    "generate",
    "improve_desk",
    "improve_monitor",
    "improve_recommender",
    "infill",
    "inspect",
    "learn_desk",
    "learn_monitor",
    "learn_recommender",
    "load",
    "load_finetuned",
    "models",
    "named",
    "names_in_monitor",
    "open",
    "open_desk",
    "open_monitor",
    "open_recommender",
    "package",
    "person_in_desk",
    "person_in_monitor",
    "person_in_recommender",
    "plan",
    "plot",
    "predict",
    "predict_each",
    "prepare",
    "pretrain",
    "push",
    "recommend",
    "report_monitor",
    "roll_back_desk",
    "roll_back_monitor",
    "roll_back_recommender",
    "run_study",
    "sample",
    "samples",
    "save_explanation",
    "score",
    "score_each",
    "studies",
    "task_kinds",
    "trends_in_monitor",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'segue' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
