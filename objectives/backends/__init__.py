"""Backends by name, loaded on first use: none is imported before a study asks for it."""

from objectives.backends.registry import available, load

__all__ = ["available", "load"]
