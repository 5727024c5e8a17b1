"""Devices: which there are for a backend on this machine, and how a process is made to see one of them alone.

Flow: the child lists what it finds (`Backend.devices`) -> the tuner chooses by the words of the user HERE -> one child
process for each, started with the variables of its device before any library of it is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from objectives.errors import BackendUnavailableError, InputError

ALL = "all"
_SHORT = 12  # characters of a UUID that tell devices of one machine apart


class Device(msgspec.Struct, frozen=True):
    """One device: `name` is what users call it ("0"), `key` what a lock guards and a trial is recorded with.

    `variables` go into the environment of a process that is to use this device alone.
    """

    name: str
    key: str  # as `Environment.device`: "cuda:GPU-...", "cpu"
    model: str  # in words
    variables: Mapping[str, str] = {}

    @property
    def uuid(self) -> str:
        """The key without the kind of device."""
        return self.key.partition(":")[2] or self.key


def told(variable: str) -> str | None:
    """What this process's environment says about devices; None if nothing."""
    return os.environ.get(variable)


def short(key: str) -> str:
    """A device's key for people: `cuda:GPU-5f3c2a1b`; what is short stays as it is."""
    kind, colon, rest = key.partition(":")
    return f"{kind}{colon}{rest[:_SHORT]}" if colon else key


def choose(backend: str, offered: Sequence[Device], words: Sequence[str]) -> tuple[Device, ...]:
    """The devices that a user named: by name, `KIND:NAME`, UUID or the beginning of one; or `all`.

    Raises: BackendUnavailableError if there is none, InputError for a word that names none, several, or one twice.
    """
    if not offered:
        raise BackendUnavailableError(
            f"backend {backend!r} finds no device on this machine", hint="leave --devices out, or see `env`"
        )
    if list(words) == [ALL]:
        return tuple(offered)
    found = [_one(backend, offered, word) for word in words]
    if not found:
        raise InputError("no device is named", hint="give --devices 0,1 or --devices all")
    for index, device in enumerate(found):
        if device in found[:index]:
            raise InputError(
                f"device {words[index]!r} is named twice: it is {device.key}", hint="one process measures on a device"
            )
    return tuple(found)


def _one(backend: str, offered: Sequence[Device], word: str) -> Device:
    exact = [one for one in offered if word in (one.name, one.key, one.uuid, f"{one.key.partition(':')[0]}:{one.name}")]
    found = exact or [one for one in offered if len(word) > 2 and one.uuid.lower().startswith(word.lower())]
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"{one.name} ({one.model}, {short(one.key)})" for one in offered)
    trouble = f"stands for {len(found)} devices" if found else "is no device"
    raise InputError(
        f"{word!r} {trouble} of backend {backend!r} here", hint=f"there are: {there}; `all` stands for every one"
    )
