"""Fit models to a user's own files, and predict with them: what ``dcgs fit`` and ``dcgs predict`` do."""

from dcgs.fitting.graphs import NAMED, GraphWish
from dcgs.fitting.methods import METHODS, method_named
from dcgs.fitting.models import Model, find_model
from dcgs.fitting.orders import Fitted, Order, agents_of, fit
from dcgs.fitting.output import Output, put, table, write_whole
from dcgs.fitting.predicting import Predictions, best, predict, samples_layout
from dcgs.fitting.problems import PROBLEMS, Problem
from dcgs.fitting.readers import EntriesLayout, SamplesLayout, read_entries, read_samples
from dcgs.fitting.sets import SETS, SetWish
from dcgs.fitting.sites import Sites
from dcgs.fitting.ticking import Ticking

__all__ = [
    "METHODS",
    "NAMED",
    "PROBLEMS",
    "SETS",
    "EntriesLayout",
    "Fitted",
    "GraphWish",
    "Model",
    "Order",
    "Output",
    "Predictions",
    "Problem",
    "SamplesLayout",
    "SetWish",
    "Sites",
    "Ticking",
    "agents_of",
    "best",
    "find_model",
    "fit",
    "method_named",
    "predict",
    "put",
    "read_entries",
    "read_samples",
    "samples_layout",
    "table",
    "write_whole",
]
