"""``dcgs study``: make the file that all sites of a study hold, and sign their certificates."""

from __future__ import annotations

import argparse
import io
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from dcgs.cli.fit_options import LOCAL, OF_NOISE, add_options, config_of
from dcgs.cli.jobs import HELP
from dcgs.cli.values import count, job, option, path, positive
from dcgs.files import atomic_write
from dcgs.learn.files.fit import OPEN_SUMS, FitConfig
from dcgs.learn.files.graphs import NAMED, GraphSpec
from dcgs.learn.files.handover import HandoverFiles
from dcgs.learn.files.layout import EntriesLayout
from dcgs.sites.config import SiteConfig
from dcgs.sites.keys import DAYS, Authority, Identity
from dcgs.sites.node import as_flags
from dcgs.sites.study import RELAY, Member, Study, StudyLimits, edges_between

STUDY, CA_KEY, LATEST = "study.toml", "ca.key", "latest.json"

_ABOUT = """\
Make the file that all sites of a study hold: who they are, how they reach each other, what they compute.
"""
_MORE = """\
A site is NAME, or NAME=https://HOST:PORT if others can dial it. On an edge the end without an address dials
the other; where neither end has one, both dial the relay. The options of dcgs fit say what is fitted.

the coordinator's part, in this order, as examples:
  dcgs study new heart/ --sites ulm=https://ulm.example.org:8443,graz,bern --problem logistic --radius auto
                                  each site then makes its keys: dcgs site key FOLDER
  dcgs study sign heart/ ulm.csr graz.csr bern.csr
                                  give heart/study.toml to all sites, and each its certificate
  dcgs study show heart/          its SHA-256, to be compared by phone; the sites go on with dcgs site check

later, if graz will not come back:
  dcgs study without graz heart/
"""
_CLOCK = ("seconds", "every", "resume", "measure", *OF_NOISE)
"""Options that would make a run depend on the clock or on noise, which a site that starts again would draw
anew, or that need what sites have in other ways."""


_FILES = ("points", "polytope", "groups", "lower", "upper")
"""Options that may be files, which all sites have; a study must not make a site read others."""


def add(jobs: Any) -> None:
    """Add the job to the command."""
    kinds = job(jobs, "study", HELP["study"], _ABOUT, _MORE).add_subparsers(required=True, metavar="WHAT")
    new = job(kinds, "new", "make a study", _ABOUT, _MORE)
    new.add_argument(
        "folder", type=Path, metavar="FOLDER", help="where the study and the key of its CA are written"
    )
    add_to = partial(option, new)
    add_to(
        "--sites SITES", "names, separated by commas; NAME=https://HOST:PORT if others dial it", required=True
    )
    add_to("--graph GRAPH", f"{NAMED}; or a file of edges (default: complete)", default="complete")
    add_to("--relay ADDRESS", "https://HOST:PORT of a relay, for edges whose ends have no address")
    add_to("--inspected", "sites may reach the relay by proxies that open TLS (docs/sites-security.md)", bool)
    add_to(
        "--run-number N", "of a study that is run again with the same options (default: 1)", count, default=1
    )
    add_to("--patience HOURS", "how long a site waits for another (default: 72)", positive, default=72.0)
    limits = StudyLimits()
    add_to(
        "--rounds-limit N",
        f"the most rounds of messages, in all (default: {limits.rounds})",
        count,
        default=limits.rounds,
    )
    text = f"the most megabytes that a site sends, in all (default: {limits.sent_mb})"
    add_to("--sent-limit MB", text, count, default=limits.sent_mb)
    text = "the most megabytes of one message (default: 64)"
    add_to("--message-limit MB", text, count, default=StudyLimits.message_mb)
    add_to("--problem PROBLEM", "as the first word after dcgs fit", required=True)
    for action in _shared_actions():
        new._add_action(action)
    new.set_defaults(run=_new)
    sign = job(kinds, "sign", "sign the request of a site, and add its keys to the study", _ABOUT, _MORE)
    sign.add_argument("folder", type=Path, metavar="FOLDER", help="the folder of the study")
    sign.add_argument(
        "requests", type=Path, nargs="+", metavar="REQUEST", help="a file that dcgs site key wrote"
    )
    option(sign, "--days N", f"how long the certificate is valid (default: {DAYS})", count, default=DAYS)
    sign.set_defaults(run=_sign)
    text = "leave a site out, by consent of all others: they go on from the models that they have"
    without = job(kinds, "without", text, _ABOUT, _MORE)
    without.add_argument("site", metavar="SITE", help="the name of the site that will not come back")
    text = "the folder of the study (default: this one)"
    without.add_argument("folder", type=Path, nargs="?", default=Path(), metavar="FOLDER", help=text)
    without.set_defaults(run=_without)
    show = job(kinds, "show", "print what a study computes, and its SHA-256", _ABOUT, _MORE)
    show.add_argument("study", type=path, metavar="STUDY", help="a study, or its folder")
    show.set_defaults(run=_show)


def _fit_parser() -> argparse.ArgumentParser:
    return add_options(argparse.ArgumentParser().add_subparsers())


def _shared_actions() -> list[argparse.Action]:
    """Return the options of ``dcgs fit`` that all sites must agree on."""
    left_out = (*LOCAL, *_CLOCK, "help", "graph", "problem", "base", "split")
    return [action for action in _fit_parser()._actions if action.dest not in left_out]


def fit_arguments(study: Study, config: SiteConfig, folder: Path) -> argparse.Namespace:
    """Return the options of ``dcgs fit`` at a site, which writes its files to the folder."""
    edges = "\n".join(f"{study.rank(a)} {study.rank(b)}" for a, b in (edge.ends for edge in study.edges))
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / "graph.txt", f"{edges}\n".encode())
    options = dict(study.fit)
    problem = str(options.pop("problem", ""))
    _check_options(options | {"problem": problem})
    if config.data_file in [config.file.parent / str(options[name]) for name in options.keys() & _FILES]:
        raise ValueError(f"a study must not use the data of a site as another file; got {config.data}.")
    local = [
        "--data",
        config.data,
        "--name",
        config.name,
        "--agents",
        str(len(study.sites)),
        "--graph",
        str(folder / "graph.txt"),
    ]
    local += ["--out", str(folder / "model"), "--force"]
    for name, least in vars(config.floors).items():  # a site may be stricter than the study
        options[name] = max(least, int(options.get(name) or 0)) or None
    options = {name: value for name, value in options.items() if value is not None}
    args = _parsed([problem, *local, *as_flags(options), *as_flags(config.fit)])
    args.handover = HandoverFiles(folder / LATEST)
    if study.without:
        before = config.state(bytes.fromhex(study.before)) / LATEST
        args.handover = replace(args.handover, start=before, notes=(_left_out(study),))
    args.typed = ["fit", problem, *as_flags(options)]
    return args


def _parsed(argv: Sequence[str]) -> argparse.Namespace:
    """Return options of ``dcgs fit``; raise if those of a study or of the file of a site are none."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return _fit_parser().parse_args(argv)
    except SystemExit as stop:
        reason = said.getvalue().strip().rpartition("error: ")[2]
        raise ValueError(f"[fit] must have options of dcgs fit; {reason}") from stop


def _left_out(study: Study) -> str:
    """Return what is certified where sites have been left out."""
    return (
        f"without {', '.join(study.without)}, by consent of the other sites: what is certified is the "
        f"optimum over the rows of {', '.join(study.names)} alone. With a given radius, the run begins at "
        "the mean of the models that they had."
    )


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise if an option is not one that a study may have, or names code that a site would import."""
    known = {action.dest for action in _shared_actions()} | {"problem"}
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(
            f"[fit] of a study must have options of dcgs fit that all sites share; got {', '.join(unknown)}."
        )
    code = [name for name in ("problem", "method", "set", "inner") if ":" in str(options.get(name, ""))]
    if code:
        raise ValueError(
            f"a study must use what dcgs has; {code[0]} = {options[code[0]]!r} names other code."
        )
    for name in options.keys() & _FILES:
        file = Path(str(options[name]))
        if file.name != str(file) or file.name.startswith("~") or file.suffix in (".key", ".crt", ".toml"):
            raise ValueError(
                f"a study must name files by their names alone, which each site has beside its own file; "
                f"got {name} = {options[name]!r}."
            )


def _new(args: argparse.Namespace, console: Console) -> int:
    file = args.folder / STUDY
    if file.exists():
        raise ValueError(f"there must be no study in the folder; there is {file}. Choose another folder.")
    name = args.folder.resolve().name.lower()
    relay = None if args.relay is None else Member(RELAY, args.relay, inspected=args.inspected)
    sites = tuple(_member(text.strip()) for text in args.sites.split(","))
    graph = GraphSpec(args.graph, args.seed).build(len(sites)).graph
    shared = {action.dest: action for action in _shared_actions()}
    given = {
        dest: _plain(value)
        for dest, action in shared.items()
        if (value := getattr(args, dest)) is not None and value != action.default
    }
    limits = StudyLimits(
        args.message_limit, patience_hours=args.patience, rounds=args.rounds_limit, sent_mb=args.sent_limit
    )
    edges = edges_between(sites, sorted(tuple(sorted(edge)) for edge in graph.edges))
    fit = {"problem": args.problem, **given}
    study = Study(name, sites, edges, fit, limits, args.run_number, relay)
    study.check()
    study = replace(study, fit=fit | _privacy(_check_fit(study)))
    authority = Authority.create(name)
    args.folder.mkdir(parents=True, exist_ok=True)
    authority.save_key(args.folder / CA_KEY)
    atomic_write(file, replace(study, ca=authority.pem).to_toml().encode())
    console.print(
        f"{file} is the study; {args.folder / CA_KEY} is the private key that signs its certificates. Now "
        "each site makes its keys with: dcgs site key FOLDER. Sign their requests with: dcgs study sign "
        f"{args.folder} REQUEST",
        soft_wrap=True,
    )
    return 0


def _check_fit(study: Study) -> FitConfig:
    """Return what is fitted; raise if the options contradict each other."""
    options = dict(study.fit)
    problem = str(options.pop("problem"))
    _check_options(study.fit)
    args = _parsed([problem, "--data", "-", "--out", "-", *as_flags(options)])
    config = config_of(args)
    config.check()
    own = replace(config, source=replace(config.source, own=True))
    return own.decided(len(study.sites))


def _privacy(config: FitConfig) -> dict[str, Any]:
    """Return what the study says about masks and floors, also where that is the default."""
    floors = config.floors
    given = {} if floors is None else {"min_count": floors.min_count, "min_sites": floors.min_sites}
    return {"secure" if config.secure else "open": True} | given


def _member(text: str) -> Member:
    name, _, address = text.partition("=")
    return Member(name, address or None)


def _plain(value: Any) -> Any:
    """Return the value of an option as TOML has it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, list):
        return [f"{item[0]}={item[1]}" if isinstance(item, tuple) else item for item in value]
    return value


def _sign(args: argparse.Namespace, console: Console) -> int:
    file = args.folder / STUDY
    study = Study.load(file)
    authority = Authority.load(args.folder / CA_KEY, study.ca)
    for request in args.requests:
        who = Identity.of_request(request.read_bytes())
        member = study.member(who.name)
        if member.is_signed and (member.ed25519, member.x25519) != (who.ed25519, who.x25519):
            raise ValueError(
                f"the study has other keys of {who.name}; a request of other keys changes the study. "
                "Remove the old "
                f"ones from {file} if that is meant."
            )
        signed = replace(member, ed25519=who.ed25519, x25519=who.x25519)
        sites = tuple(signed if site.name == who.name else site for site in study.sites)
        study = replace(study, sites=sites, relay=signed if who.name == RELAY else study.relay)
        atomic_write(args.folder / f"{who.name}.crt", authority.sign(who, args.days))
        if not member.is_signed:
            atomic_write(file, study.to_toml().encode())
        console.print(f"{args.folder / who.name}.crt is the certificate of {who.name}", soft_wrap=True)
    missing = [member.name for member in study.members if not member.is_signed]
    console.print(
        f"requests of {', '.join(missing)} are missing"
        if missing
        else f"the study is complete: give {file} to all sites, and each its certificate",
        soft_wrap=True,
    )
    return 0


def _without(args: argparse.Namespace, console: Console) -> int:
    file = args.folder / STUDY
    study = Study.load(file)
    study.check_signed()
    left = study.leave_out(args.site)
    _check_fit(left)
    atomic_write(args.folder / f"study-run-{study.run}.toml", study.content)
    atomic_write(file, left.to_toml().encode())
    console.print(
        f"{file} is the study without {args.site}, run {left.run}: give it to {', '.join(left.names)}. Each "
        "reads and agrees to it with dcgs site agree, and starts with dcgs site run. Certificates stay as "
        "they are.",
        soft_wrap=True,
    )
    return 0


def _show(args: argparse.Namespace, console: Console) -> int:
    study = Study.load(args.study / STUDY if args.study.is_dir() else args.study)
    console.print(describe_study(study), soft_wrap=True, highlight=False)
    return 0


def _sums(study: Study) -> str:
    """Return whether sums are masked, which floors there are, and what others then see."""
    config = _check_fit(study)
    how = f"open: {OPEN_SUMS}"
    if config.secure:
        how = "masked: others see uniform words, and only totals over all sites can be read."
    if config.floors is None:
        return f"{how} There are no floors."
    floors = f"{config.floors.min_count} people at {config.floors.min_sites} sites"
    return f"{how} They are about at least {floors}; a site may ask for more."


def _kinds(config: FitConfig) -> list[str]:
    """Return a line for each kind of what leaves a site."""
    lines = ["the name, the size and the SHA-256 of its file; the versions of its packages"]
    if isinstance(config.layout, EntriesLayout):
        lines += [
            "names of items, if there are any; how many ratings there are, and sums of ratings by item",
            "in each round the factors of a step: vectors as long as there are items; without masks also, if "
            "items are few, sums of products of what the model lacks of two ratings, by pair of items",
        ]
    else:
        lines += [
            "names and types of columns, levels of categories and labels, options",
            "the number of rows; sums of each column, of its squares and of the target",
            *(["sums of each column over the rows of each class"] if config.problem.labels else []),
            *(["errors of models on rows held out, for each radius"] if config.set.finds_radius else []),
            "in each round gradients of the loss or points, as long as the model; Hessians of small models",
        ]
    if config.rows.preparation.held_out:
        lines.append("errors of the model on the rows or ratings that are held out")
    return ["leaves a site:", *(f"  {line}" for line in lines), "  all sites get the model; no row is sent"]


def describe_study(study: Study) -> str:
    """Return what a study computes and what leaves a site, in lines for people."""
    fit = dict(study.fit)
    inspected = study.relay is not None and study.relay.inspected
    relayed = "by the relay, also through proxies that open TLS" if inspected else "by the relay"
    lines = [
        f"study {study.name}, run {study.run}, SHA-256 {study.hash.hex()}",
        f"sites: {', '.join(study.names)}",
        *(
            f"  {a} – {b}: {f'{edge.dials} dials' if edge.dials else relayed}"
            for edge in study.edges
            for a, b in [edge.ends]
        ),
        f"fits: {fit.pop('problem')} with "
        f"{', '.join(f'{k} = {v}' for k, v in fit.items()) or 'default options'}",
        *_kinds(_check_fit(study)),
        f"sums are {_sums(study)}",
        f"at most {study.limits.rounds} rounds of messages, and {study.limits.sent_mb} MB from each site, "
        "in all, beside what it passes on for others, sealed; one message has at most "
        f"{study.limits.message_mb} MB. A site stops before it sends more.",
        f"a site waits {study.limits.patience_hours:g} hours for another",
        *([_left_out(study)] if study.without else []),
    ]
    missing = [member.name for member in study.members if not member.is_signed]
    if missing:
        lines.append(f"not signed yet: {', '.join(missing)}")
    return "\n".join(lines)
