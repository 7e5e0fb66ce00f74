"""What the options of ``dcgs fit`` describe: the configuration of a fit."""

from __future__ import annotations

import argparse
from typing import Any

from dcgs import __version__
from dcgs.cli.fit_options import columns_of, text_format
from dcgs.fitting.config import FitConfig
from dcgs.fitting.data import DataSource
from dcgs.fitting.graphs import GraphSpec
from dcgs.fitting.problems import Problem, method_named, problem_named
from dcgs.fitting.readers import EntriesLayout, SamplesLayout
from dcgs.fitting.sample_problem import SampleOptions
from dcgs.fitting.samples import Preparation
from dcgs.fitting.sets import SetSpec, built_in_options
from dcgs.fitting.site_records import option_text
from dcgs.front import Checkpoint

_METHOD_OPTIONS = ("inner", "eta", "step", "answer")
_RULES = ("gap", "gap_abs", "rounds", "iterations", "seconds", "lmo_calls")
_TABLES_ONLY = ("target", "features", "use", "drop", "categorical", "decimal")
# What sites need not agree on: their files, how a process runs, what it writes. The number of agents is
# compared when it is known.
_OWN_FILES = ("data", "header", "columns", "encoding", "decimal")
_OWN_PROCESS = ("runtime", "ranks", "timeout", "start_timeout", "threads", "typed", "run", "agents")
_OWN_OUTPUT = ("out", "force", "report", "checkpoint")
_LOCAL = (*_OWN_FILES, *_OWN_PROCESS, *_OWN_OUTPUT)
# Defaults of options that are refused for ratings.
_DEFAULTS: dict[str, Any] = {"missing": "mean", "held_out": 0.1}
_SAMPLES_ONLY = (*_TABLES_ONLY, "intercept", "standardize", "class_weight", "folds", "missing", "held_out")


def config_of(args: argparse.Namespace) -> FitConfig:
    """Return the configuration that the options describe."""
    problem = problem_named(args.problem, dict(args.loss_option))
    flags = {option.name: getattr(args, option.name) for option in built_in_options()}
    set_options = {name: value for name, value in flags.items() if value is not None} | dict(args.set_option)
    method_options = {name: getattr(args, name) for name in _METHOD_OPTIONS}
    own_options = dict(args.method_option), dict(args.inner_option)
    return FitConfig(
        problem=problem,
        source=DataSource(args.data, args.split or ("sorted" if problem.entries else "even"), args.seed),
        layout=_layout(args, problem),
        graph=GraphSpec(args.graph, args.seed),
        set=SetSpec(args.set or problem.usual_set, set_options),
        method=method_named(args.method, method_options, *own_options),
        rules={name: getattr(args, name) for name in _RULES},
        agents=args.agents,
        shape=args.shape,
        measure=args.measure,
        seed=args.seed,
        checkpoint=_checkpoint(args),
        samples=_sample_options(args, problem),
        ridge=_ridge(args, problem),
        options=_common_options(args),
    )


def _common_options(args: argparse.Namespace) -> dict[str, str]:
    """Return the options that must be the same at all sites, by flag; targets in files are local."""
    given = {name: value for name, value in vars(args).items() if name not in _LOCAL}
    given |= {name: value for name, value in _DEFAULTS.items() if given[name] is None}
    if str(args.target).endswith(".npy"):
        given["target"] = "an .npy file"
    flags = {"problem": "PROBLEM", "base": "--zero-based or --one-based"}
    files = {"graph", *(option.name for option in built_in_options())}
    options = {
        flags.get(name, f"--{name.replace('_', '-')}"): option_text(value, name in files)
        for name, value in given.items()
    }
    return options | {"--checkpoint": str(args.checkpoint is not None), "the version of dcgs": __version__}


def _sample_options(args: argparse.Namespace, problem: Problem) -> SampleOptions:
    if args.class_weight is not None and not problem.labels:
        raise ValueError(f"--class-weight must be left out for {problem.name}, which has no classes.")
    given = {
        name: default if (value := getattr(args, name)) is None else value
        for name, default in _DEFAULTS.items()
    }
    how = Preparation(tuple(args.categorical), **given)
    if args.folds is not None and args.radius != "auto":
        raise ValueError("--folds is for --radius auto, whose radii are judged on them. Leave it out.")
    balanced = args.class_weight == "balanced"
    return SampleOptions(how, args.intercept, args.standardize, balanced, args.folds or 1)


def _ridge(args: argparse.Namespace, problem: Problem) -> float | None:
    """Return the ridge of the offsets; None means no offsets."""
    given = [name for name in ("offsets", "ridge") if getattr(args, name) is not None]
    if given and not problem.entries:
        raise ValueError(f"--{given[0]} must be left out for {problem.name}, which has no ratings.")
    if args.offsets is False and args.ridge is not None:
        raise ValueError("--ridge must be left out with --no-offsets, which fits none.")
    return None if args.offsets is False else args.ridge or 5.0


def _layout(args: argparse.Namespace, problem: Problem) -> SamplesLayout | EntriesLayout:
    foreign = _SAMPLES_ONLY if problem.entries else ("columns", "shape", "base")
    given = [name for name in foreign if getattr(args, name) not in (None, [])]
    if given:
        name = {"base": "zero-based or --one-based"}.get(given[0], given[0].replace("_", "-"))
        raise ValueError(f"--{name} must be left out for {problem.name}, which does not use it.")
    if problem.entries:
        return EntriesLayout(columns_of(args), args.header, args.base, text=text_format(args))
    use = None if args.use is None else tuple(args.use)
    drop, form = tuple(args.drop), text_format(args)
    return SamplesLayout(args.target, args.header, args.features, use=use, drop=drop, text=form)


def _checkpoint(args: argparse.Namespace) -> Checkpoint | None:
    if args.checkpoint is not None:
        return Checkpoint(args.checkpoint, args.every or 10, args.resume)
    given = [name for name in ("every", "resume") if getattr(args, name)]
    if given:
        raise ValueError(f"--{given[0]} needs a folder for the state of the agents. Add --checkpoint DIR.")
    return None
