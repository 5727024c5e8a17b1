"""Places: where the trials of a run are evaluated: one, or several devices of one model at once.

Flow: `--devices` -> the devices of the backend are listed, chosen and described HERE, each by a process that sees it
alone -> loop.py runs a lane at each place. Without `--devices` there is one place: what the backend takes by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from objectives.backends.base import Environment
from objectives.devices import Device, choose, short
from objectives.isolation import Isolation
from objectives.requests import Described, DescribeRequest
from tuner.errors import UsageError
from tuner.limits import isolation_for
from tuner.noise import NewIsolation
from tuner.spec import StudySpec


class Starter:
    """Starts processes for one place; the first is the one that has described it, which knows its runtime already."""

    def __init__(self, spec: StudySpec, variables: Mapping[str, str] | None = None) -> None:
        self._spec = spec
        self._variables = variables
        self._waiting: Isolation | None = None

    def describe(self, request: DescribeRequest) -> Described:
        """What is here; the process waits for `__call__` or `close` then."""
        isolation = isolation_for(self._spec, self._variables)
        try:
            found = isolation.describe(request)
        except BaseException:
            isolation.close()
            raise
        self.close()
        self._waiting = isolation
        return found

    def __call__(self) -> Isolation:
        waiting, self._waiting = self._waiting, None
        return waiting or isolation_for(self._spec, self._variables)

    def close(self) -> None:
        """End a process that nobody has called for."""
        if self._waiting is not None:
            self._waiting.close()
        self._waiting = None


@dataclass(frozen=True, slots=True)
class Place:
    """A device, and how to start a process that uses it alone.

    `name` is what users call it, empty where there is no choice; `key` is what its lock guards and what is recorded.
    """

    name: str
    key: str
    fresh: NewIsolation


def places_of(where: Sequence[Place] | NewIsolation, device: str) -> tuple[Place, ...]:
    """Places as they are; a mere way to start a process becomes the one place that there is, on `device`."""
    return tuple(where) if isinstance(where, Sequence) else (Place("", device, where),)


@contextmanager
def find_places(
    spec: StudySpec, request: DescribeRequest, words: Sequence[str] | None, *, keep: bool = True
) -> Iterator[tuple[Described, tuple[Place, ...]]]:
    """What is here for a model, and the places that `words` name; None: one place, whichever the backend takes.

    `keep`: the processes that described the places are the first to be used there.
    Raises: UsageError if they are not of one model, errors of `objectives.devices.choose`.
    """
    with ExitStack() as stack:
        if words is None:
            chosen: tuple[Device | None, ...] = (None,)
        else:
            with isolation_for(spec) as isolation:
                listed = isolation.describe(DescribeRequest(request.backend, None, request.options))
            chosen = choose(spec.backend, listed.devices, words)
        starters = [Starter(spec, None if device is None else device.variables) for device in chosen]
        for starter in starters:
            stack.callback(starter.close)
        if len(starters) == 1:
            found = [starters[0].describe(request)]
        else:
            with ThreadPoolExecutor(len(starters)) as pool:
                found = list(pool.map(lambda starter: starter.describe(request), starters))
        for starter in starters if not keep else ():
            starter.close()
        places: list[Place] = []
        for device, starter, here in zip(chosen, starters, found, strict=True):
            name = "" if device is None else device.name
            _require_alike(found[0].environment, here.environment, (places[0].name if places else name, name))
            places.append(Place(name, here.environment.device if device is None else device.key, starter))
        yield found[0], tuple(places)


def label(place: Place) -> str:
    """A place for people."""
    return place.name or short(place.key)


def _require_alike(one: Environment, other: Environment, names: tuple[str, str]) -> None:
    if one.digest != other.digest:
        raise UsageError(
            f"devices {names[0]} and {names[1]} are not alike: {_difference(one, other)}",
            hint="timings of unlike devices cannot be compared: run the study once for each kind of device, which "
            "gives each a context of its own",
        )


def _difference(one: Environment, other: Environment) -> str:
    facts = sorted({*one.identity, *other.identity})
    parts = [
        f"{name} {one.identity.get(name, 'unknown')} and {other.identity.get(name, 'unknown')}"
        for name in facts
        if one.identity.get(name) != other.identity.get(name)
    ]
    return "; ".join(parts) or "another kind of device"
