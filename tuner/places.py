"""Places: where the trials of a run are evaluated: one, or several devices of one model at once.

Flow: `--devices` -> the devices of the backend are listed, chosen and described HERE, each by a process that sees it
alone -> loop.py runs a lane at each place. Without `--devices` there is one place: what the backend takes by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from objectives.backends.base import Environment
from objectives.devices import choose, short
from objectives.isolation import Isolation
from objectives.requests import Described, DescribeRequest
from tuner.errors import UsageError
from tuner.limits import isolation_for
from tuner.noise import NewIsolation
from tuner.spec import StudySpec


@dataclass(frozen=True, slots=True)
class Place:
    """A device, and how to start a process that uses it alone.

    `name` is what users call it, empty where there is no choice; `key` is what its lock guards and what is recorded.
    """

    name: str
    key: str
    fresh: NewIsolation


def find_places(
    spec: StudySpec, request: DescribeRequest, words: Sequence[str] | None
) -> tuple[Described, tuple[Place, ...]]:
    """What is here for a model, and the places that `words` name; None: one place, whichever the backend takes.

    Raises: UsageError if they are not of one model, errors of `objectives.devices.choose`.
    """
    if words is None:
        here = _described(_isolation(spec), request)
        return here, (Place("", here.environment.device, lambda: isolation_for(spec)),)
    listed = _described(_isolation(spec), DescribeRequest(request.backend, None, request.options))
    chosen = choose(spec.backend, listed.devices, words)
    starts = [_starter(spec, one.variables) for one in chosen]
    with ThreadPoolExecutor(len(chosen)) as pool:
        found = list(pool.map(lambda start: _described(start(), request), starts))
    for device, one in zip(chosen[1:], found[1:], strict=True):
        if one.environment.digest != found[0].environment.digest:
            raise UsageError(
                f"devices {chosen[0].name} and {device.name} are not alike: "
                f"{_difference(found[0].environment, one.environment)}",
                hint="timings of unlike devices cannot be compared: run the study once for each kind of device, which "
                "gives each a context of its own",
            )
    places = [Place(one.name, one.key, start) for one, start in zip(chosen, starts, strict=True)]
    return found[0], tuple(places)


def label(place: Place) -> str:
    """A place for people."""
    return place.name or short(place.key)


def _isolation(spec: StudySpec) -> Isolation:
    return isolation_for(spec)


def _starter(spec: StudySpec, variables: Mapping[str, str]) -> NewIsolation:
    return lambda: isolation_for(spec, variables)


def _described(isolation: Isolation, request: DescribeRequest) -> Described:
    with isolation:
        return isolation.describe(request)


def _difference(one: Environment, other: Environment) -> str:
    facts = sorted({*one.identity, *other.identity})
    parts = [
        f"{name} {one.identity.get(name, 'unknown')} and {other.identity.get(name, 'unknown')}"
        for name in facts
        if one.identity.get(name) != other.identity.get(name)
    ]
    return "; ".join(parts) or "another kind of device"
