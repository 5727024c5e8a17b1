"""Simulated tuning problems that several tests share; small, quick, and with every answer known."""

from __future__ import annotations

from typing import Any

from objectives.landscape import Fault, Interaction, Landscape, SimulatedKnob

FAULT_KNOB = "fault"


def knob(name: str, *effects: float, default: str = "v0") -> SimulatedKnob:
    """A knob with values v0, v1, ...; v0 changes nothing, the others change log latency by `effects`."""
    values = {f"v{index}": effect for index, effect in enumerate((0.0, *effects))}
    return SimulatedKnob(name, tuple(values), default, values)


def small(**changes: Any) -> Landscape:
    """Two knobs, six candidates; the best is `a=v1 b=v1`; latencies are the same each time."""
    knobs = (knob("a", -0.2, 0.3), knob("b", -0.4))
    return Landscape(**{"knobs": knobs, "repeatable": True, "noise": 0.001, **changes})


def wide(**changes: Any) -> Landscape:
    """Four knobs, 256 candidates; the best has every knob at v1."""
    knobs = tuple(knob(name, -0.1 * rank, 0.1, 0.2) for rank, name in enumerate("abcd", 1))
    return Landscape(**{"knobs": knobs, "repeatable": True, "noise": 0.001, **changes})


def faulty(**changes: Any) -> Landscape:
    """One knob whose values are `none` and every fault that there is."""
    values = ("none", *(fault.value for fault in Fault))
    interactions = tuple(Interaction({FAULT_KNOB: fault.value}, fault=fault) for fault in Fault)
    knobs = (SimulatedKnob(FAULT_KNOB, values, "none"),)
    return Landscape(**{"knobs": knobs, "interactions": interactions, "repeatable": True, **changes})


def broken_default(**change: Any) -> Landscape:
    """Every candidate, the default among them, goes wrong as `change` says (`fault=` or `loss=`)."""
    return small(interactions=(Interaction({}, **change),))
