"""Fit models to a user's own files, and predict with them: what ``dcgs fit`` and ``dcgs predict`` do."""

from dcgs.fitting.company import Alone, Company, Together
from dcgs.fitting.graphs import NAMED, GraphWish
from dcgs.fitting.methods import method_named
from dcgs.fitting.models import Model, find_model
from dcgs.fitting.orders import Fitted, Order, agents_of, fit
from dcgs.fitting.output import Output, put, table, write_whole
from dcgs.fitting.predicting import Predictions, best, predict, samples_layout
from dcgs.fitting.problems import PROBLEMS, Problem, problem_named
from dcgs.fitting.readers import EntriesLayout, SamplesLayout, read_entries, read_samples
from dcgs.fitting.sets import SetSpec, built_in_options, parse_value, sets_with
from dcgs.fitting.sites import Sites
from dcgs.fitting.ticking import Ticking

__all__ = [
    "NAMED",
    "PROBLEMS",
    "Alone",
    "Company",
    "EntriesLayout",
    "Fitted",
    "GraphWish",
    "Model",
    "Order",
    "Output",
    "Predictions",
    "Problem",
    "SamplesLayout",
    "SetSpec",
    "Sites",
    "Ticking",
    "Together",
    "agents_of",
    "best",
    "built_in_options",
    "find_model",
    "fit",
    "method_named",
    "parse_value",
    "predict",
    "problem_named",
    "put",
    "read_entries",
    "read_samples",
    "samples_layout",
    "sets_with",
    "table",
    "write_whole",
]
