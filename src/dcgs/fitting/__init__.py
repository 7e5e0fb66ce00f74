"""Fit models to a user's own files, and predict with them: the work of ``dcgs fit`` and ``dcgs predict``."""

from dcgs.fitting.config import FitConfig
from dcgs.fitting.graphs import NAMED, GraphSpec
from dcgs.fitting.methods import method_named
from dcgs.fitting.models import Model, find_model
from dcgs.fitting.output import OutputFolder, csv_text
from dcgs.fitting.predicting import Predictions, predict, samples_layout, top_columns
from dcgs.fitting.problems import PROBLEMS, Problem, problem_named
from dcgs.fitting.readers import EntriesLayout, SamplesLayout, read_entries, read_samples
from dcgs.fitting.run import FitResult, fit
from dcgs.fitting.sets import SetSpec, built_in_options, parse_value, sets_with
from dcgs.fitting.source import DataSource

__all__ = [
    "NAMED",
    "PROBLEMS",
    "DataSource",
    "EntriesLayout",
    "FitConfig",
    "FitResult",
    "GraphSpec",
    "Model",
    "OutputFolder",
    "Predictions",
    "Problem",
    "SamplesLayout",
    "SetSpec",
    "built_in_options",
    "csv_text",
    "find_model",
    "fit",
    "method_named",
    "parse_value",
    "predict",
    "problem_named",
    "read_entries",
    "read_samples",
    "samples_layout",
    "sets_with",
    "top_columns",
]
