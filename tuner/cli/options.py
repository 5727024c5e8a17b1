"""Options that several commands share, and the many flags of `study create` turned into StudyOptions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tuner.cli import parse
from tuner.cli.completion import backends, knobs, searches, studies

if TYPE_CHECKING:
    from objectives.accuracy import Limit
    from objectives.requests import Judging
    from tuner.answers import ConfirmOptions
    from tuner.spec import Budget, StudyOptions, WorkloadOptions

Command = TypeVar("Command", bound=Callable[..., Any])

storage_option = click.option(
    "--storage",
    metavar="URL",
    default="sqlite:///tuner.db",
    envvar="TUNER_STORAGE",
    show_default=True,
    show_envvar=True,
    help="Database of studies: an SQLAlchemy URL.",
)
artifacts_option = click.option(
    "--artifacts",
    metavar="DIR",
    type=click.Path(path_type=Path),
    envvar="TUNER_ARTIFACTS",
    show_envvar=True,
    help="Folder of models, tensors and engines.  [default: beside the database]",
)
study_argument = click.argument("name", shell_complete=studies)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
backend_option = click.option(
    "--backend",
    metavar="NAME",
    shell_complete=backends,
    help="Runtime, compiler or program to tune.  [default: command for a .toml file, else onnxruntime]",
)

backend_option_option = click.option(
    "--backend-option",
    "backend_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set something of the backend for the whole study; `env --backend NAME` lists what there is.",
)

devices_option = click.option(
    "--devices",
    metavar="LIST",
    help="Devices to use at once, of one model: 0,1 or cuda:1 or the UUID of a GPU or all; `env` lists them.  "
    "[default: one, which the backend chooses]",
)


def to_devices(text: str | None) -> tuple[str, ...] | None:
    """Names of devices, None where nothing is said."""
    return None if text is None else tuple(one.strip() for one in text.split(",") if one.strip())


def budget_options(command: Command) -> Command:
    """--n-trials and --timeout, without defaults: absent means "as it is"."""
    command = click.option("--timeout", metavar="TIME", help="Time budget of all trials together: 90s, 15m, 2h.")(
        command
    )
    return click.option("--n-trials", type=int, metavar="N", help="Trials in all, failed ones included.")(command)


_WORKLOAD = (
    click.option(
        "--shapes", multiple=True, metavar="NAME:1x3x224x224", help="Shape of a dynamic input; the one that is timed."
    ),
    click.option("--min-shapes", multiple=True, metavar="NAME:...", help="Shortest shape whose outputs are checked."),
    click.option("--max-shapes", multiple=True, metavar="NAME:...", help="Longest shape whose outputs are checked."),
    click.option(
        "--inputs",
        multiple=True,
        metavar="SOURCE",
        help="Input data: an .npz file, a folder of .npz (many pairs) or .npy files (one pair), or name:file,... "
        "with raw binary data. Repeat for more pairs. Without it, data are generated.",
    ),
    click.option(
        "--reference",
        multiple=True,
        metavar="SOURCE",
        help="Reference outputs for --inputs, in the same order and forms. Without it, the untouched model computes "
        "them at full precision on the CPU.",
    ),
    click.option(
        "--range",
        "ranges",
        multiple=True,
        metavar="NAME:LOW:HIGH",
        help="Range of generated data; needed for integer inputs.",
    ),
    click.option("--pairs", type=int, default=3, show_default=True, help="Ordinary sets of generated inputs."),
    click.option("--no-hard-inputs", is_flag=True, help="Leave out zeros, large values, denormals and edge shapes."),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of generated data and of the search."),
)
_JUDGING = (
    click.option(
        "--max-loss",
        multiple=True,
        metavar="[METRIC[:OUTPUT]=]LIMIT",
        help="Largest loss allowed: 1e-3, top1=0.01, rel_l2:logits=1e-3. Repeat for more. For a program of your own: "
        "the losses that it reports, or none.  [default: rel_l2=0.01]",
    ),
    click.option(
        "--metric",
        "metrics",
        multiple=True,
        metavar="PACKAGE.MODULE:FUNCTION",
        help="A metric of your own, called as f(actual, expected) with two dicts of arrays; gives a loss.",
    ),
    click.option("--atol", type=float, default=1e-5, show_default=True, help="Absolute tolerance of the l0 metric."),
    click.option("--rtol", type=float, default=1e-5, show_default=True, help="Relative tolerance of the l0 metric."),
)
limit_option = _JUDGING[0]
_ONLY_AT_CREATION = ("--inputs", "--reference", "--range", "--shapes", "--min-shapes", "--max-shapes", "--metric")
_SEARCH = (
    click.option(
        "--knobs",
        multiple=True,
        shell_complete=knobs,
        metavar="PATTERN",
        help="Knobs to tune: names with wildcards or kinds, commas between, - or ! in front takes away; @FILE lists "
        "them one a line; top:STUDY[:N] are those that mattered most in an earlier study.  [default: all]",
    ),
    click.option(
        "--search",
        default="auto",
        show_default=True,
        metavar="NAME",
        shell_complete=searches,
        help="How to search: auto (our own model of many knobs), tpe, gp, nsgaii, random or optuna:CLASS (samplers of "
        "Optuna), fast, mixed, full (the sweeps of trtexec; mixed:cap=10,shuffle,margin=1% deviates from it).",
    ),
    click.option(
        "--no-early-end",
        is_flag=True,
        help="Spend the whole budget, even when the search (auto) says that going on is not worth it.",
    ),
    click.option(
        "--no-transfer",
        is_flag=True,
        help="On another machine or version, start from nothing that the study has seen elsewhere.",
    ),
    click.option(
        "--objective",
        type=click.Choice(["throughput", "engine-size", "build-time"]),
        default="throughput",
        show_default=True,
        help="What to make better. All but throughput is built and checked, not timed.",
    ),
    click.option(
        "--build-only",
        is_flag=True,
        help="Do not run engines, so that no usable GPU is needed: outputs are not checked either.",
    ),
    click.option(
        "--keep-engines",
        type=click.Choice(["best", "all"]),
        default="best",
        show_default=True,
        help="Which engine files are kept. best: of the default and of the best so far, confirmed and promoted ones.",
    ),
    click.option(
        "--trial-timeout", default="5m", show_default=True, metavar="TIME", help="Deadline of one trial in all."
    ),
    click.option(
        "--timing-budget", default="2s", show_default=True, metavar="TIME", help="Most time to take samples in a trial."
    ),
    click.option(
        "--control-every",
        type=int,
        default=8,
        show_default=True,
        metavar="N",
        help="Time the default again every N trials, to take out the machine's drift; 0: never.",
    ),
    click.option(
        "--noise-sessions",
        type=int,
        default=4,
        show_default=True,
        metavar="N",
        help="Processes of the run of the default against itself that finds the noise floor; 0: none.",
    ),
    click.option(
        "--memory-limit",
        metavar="SIZE",
        help="Most memory of one trial: 8G.  [default: four fifths of the machine's]",
    ),
)


_CONFIRM = (
    click.option(
        "--min-gain", default="1%", show_default=True, metavar="SHARE", help="Smallest gain that is worth a change."
    ),
    click.option(
        "--finalists", type=int, default=3, show_default=True, metavar="N", help="Candidates that enter confirmation."
    ),
    click.option(
        "--builds", type=int, default=4, show_default=True, metavar="N", help="Fresh builds of each finalist."
    ),
    click.option(
        "--confirm-timeout",
        metavar="TIME",
        help="Time budget of the confirmation.  [default: none for `study confirm`; for `study run` a quarter of the "
        "search's time, three minutes at least]",
    ),
)
_CONFIRM_SHARE, _LEAST_CONFIRM_S = 0.25, 180.0


def create_options(command: Command) -> Command:
    """Every flag that becomes a part of StudyOptions; the command takes them as keyword arguments."""
    for option in reversed((backend_option, backend_option_option, *_WORKLOAD, *_JUDGING, *_SEARCH)):
        command = option(command)
    return budget_options(command)


def clone_options(command: Command) -> Command:
    """The flags of `study create` that say what is run and what is allowed."""
    for option in reversed((*_WORKLOAD, *_JUDGING)):
        command = option(command)
    return command


def confirm_options(command: Command) -> Command:
    """The question and the budget of a confirmation."""
    for option in reversed(_CONFIRM):
        command = option(command)
    return command


def to_confirm_options(flags: dict[str, Any], spent_s: float | None = None) -> ConfirmOptions:
    """The flags of `confirm_options` as a value; `spent_s`: of the search, which sets the time budget by default."""
    from tuner.answers import ConfirmOptions

    timeout = flags["confirm_timeout"]
    default_s = None if spent_s is None else max(_LEAST_CONFIRM_S, _CONFIRM_SHARE * spent_s)
    return ConfirmOptions(
        min_gain=parse.share(flags["min_gain"]),
        finalists=flags["finalists"],
        builds=flags["builds"],
        timeout_s=default_s if timeout is None else parse.duration_s(timeout),
    )


def only_limits_options(command: Command) -> Command:
    """What `study create` takes and `study retarget` cannot: given all the same, the answer is a reason."""
    for flag in reversed(_ONLY_AT_CREATION):
        command = click.option(flag, multiple=True, hidden=True, help="Cannot change: it belongs to `study create`.")(
            command
        )
    return command


def to_limits(max_loss: tuple[str, ...], others: dict[str, Any]) -> tuple[Limit, ...]:
    """The limits of `study retarget`. Raises: UsageError, also for what only `study create` takes."""
    from objectives.accuracy import Limit
    from objectives.metrics import DEFAULT_METRIC
    from tuner.errors import UsageError

    if given := [f"--{name.replace('_', '-')}" for name, value in others.items() if value]:
        raise UsageError(
            f"{', '.join(given)} cannot change: the stored outcomes are about the data, metrics and shapes they had",
            hint="`study create` makes a study with other ones; `study retarget` replaces limits: --max-loss",
        )
    parsed = [parse.max_loss(text, DEFAULT_METRIC) for text in max_loss]
    return tuple(Limit(metric, limit, output) for metric, output, limit in parsed)


def to_budget(n_trials: int | None, timeout: str | None) -> Budget | None:
    """A budget, None when nothing is said."""
    from tuner.spec import Budget

    if n_trials is None and timeout is None:
        return None
    return Budget(n_trials, None if timeout is None else parse.duration_s(timeout))


def chosen_backend(backend: str | None, model: Path) -> str:
    """The backend that was named; else the one for a file like `model`."""
    return backend or ("command" if model.suffix.lower() == ".toml" else "onnxruntime")


def to_study_options(flags: dict[str, Any], model: Path) -> StudyOptions:
    """The flags of `create_options`, for the file `model`, as a value. Raises: UsageError, MetricError."""
    from objectives.timing import TimingPlan
    from tuner.objective import Objective
    from tuner.spec import Budget, StudyOptions

    limit = flags["memory_limit"]
    return StudyOptions(
        backend=chosen_backend(flags["backend"], model),
        backend_options=parse.assignments("--backend-option", flags["backend_options"]),
        knobs=parse.knob_patterns(flags["knobs"]),
        workload=to_workload(flags),
        judging=to_judging(flags),
        budget=to_budget(flags["n_trials"], flags["timeout"]) or Budget(),
        timing=TimingPlan(budget_ms=parse.duration_s(flags["timing_budget"]) * 1e3),
        search=flags["search"],
        keep_engines=flags["keep_engines"],
        objective=Objective(flags["objective"]),
        build_only=flags["build_only"],
        transfer=not flags["no_transfer"],
        early_end=not flags["no_early_end"],
        control_every=flags["control_every"],
        noise_sessions=flags["noise_sessions"],
        trial_timeout_s=parse.duration_s(flags["trial_timeout"]),
        memory_bytes=None if limit is None else parse.size_bytes(limit),
    )


def to_workload(flags: dict[str, Any]) -> WorkloadOptions:
    """The flags of a workload as a value. Raises: UsageError."""
    from tuner.spec import WorkloadOptions

    return WorkloadOptions(
        shapes=parse.shapes("--shapes", flags["shapes"]),
        min_shapes=parse.shapes("--min-shapes", flags["min_shapes"]),
        max_shapes=parse.shapes("--max-shapes", flags["max_shapes"]),
        inputs=flags["inputs"],
        references=flags["reference"],
        ranges=parse.ranges(flags["ranges"]),
        pairs=flags["pairs"],
        hard=not flags["no_hard_inputs"],
        seed=flags["seed"],
    )


def to_judging(flags: dict[str, Any]) -> Judging:
    """The flags of judging as a value. Raises: UsageError, MetricError."""
    from objectives.accuracy import DEFAULT_LIMITS, Limit
    from objectives.metrics import DEFAULT_METRIC, Tolerance
    from objectives.requests import Judging

    tolerance = Tolerance(flags["atol"], flags["rtol"])
    if parse.is_no_limit(flags["max_loss"]):
        return Judging((), tolerance, flags["metrics"])
    parsed = [parse.max_loss(text, DEFAULT_METRIC) for text in flags["max_loss"]]
    limits = tuple(Limit(metric, limit, output) for metric, output, limit in parsed)
    return Judging(limits or DEFAULT_LIMITS, tolerance, flags["metrics"])
