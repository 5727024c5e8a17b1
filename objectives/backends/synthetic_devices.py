"""Pretended devices of the synthetic backend: how many, how fast each, of which model.

Flow: `--backend-option devices=...` -> HERE -> synthetic.py: one process each, told apart by an environment variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from objectives.backends.base import Option
from objectives.errors import InputError

VARIABLE = "TUNER_SYNTHETIC_DEVICE"  # name of the device that a process is started for
DEVICES = Option(
    "devices",
    "N or NAME[*SLOWNESS][@MODEL],...",
    "Pretended devices: 4, or a,b*1.02,c@other: b takes 2 % longer, c is of another model.",
)
_ENTRY = re.compile(r"(?P<name>[\w-]+)(\*(?P<slowness>\d+(\.\d+)?))?(@(?P<model>[\w-]+))?")
_MODEL = "simulated"


@dataclass(frozen=True, slots=True)
class SimulatedDevice:
    """`slowness`: its latencies as a multiple of those of the landscape."""

    name: str
    slowness: float = 1.0
    model: str = _MODEL

    @property
    def key(self) -> str:
        """As `Environment.device`."""
        return f"synthetic:{self.name}"


def read_devices(options: Mapping[str, str]) -> tuple[SimulatedDevice, ...]:
    """The devices that `options` ask for; none without the option. Raises: InputError."""
    text = options.get(DEVICES.name, "")
    if not text:
        return ()
    names = [str(index) for index in range(int(text))] if text.isdecimal() else text.split(",")
    found = [_read(one) for one in names]
    if not found or len({one.name for one in found}) < len(found):
        raise InputError(f"devices={text}: there is none, or two of one name", hint=DEVICES.help)
    return tuple(found)


def _read(text: str) -> SimulatedDevice:
    match = _ENTRY.fullmatch(text)
    slowness = float(match["slowness"] or 1.0) if match else 0.0
    if match is None or slowness <= 0:
        raise InputError(f"{text!r} is no pretended device", hint=DEVICES.help)
    return SimulatedDevice(match["name"], slowness, match["model"] or _MODEL)
