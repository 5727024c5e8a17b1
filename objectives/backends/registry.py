"""Which backends there are: the entry-point group `tuner.backends`, ours and other people's alike.

Flow: a name from the study -> HERE -> the backend's module is imported -> a Backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

from objectives.backends.base import REPLICAS, Backend
from objectives.errors import BackendUnavailableError
from objectives.replicas.backend import replicated

GROUP = "tuner.backends"
_EXTRAS = {name: name for name in ("onnxruntime", "onnxruntime-cuda", "tensorrt", "tensorrt-rtx")}


def available() -> tuple[str, ...]:
    """Names of the registered backends; a name says nothing yet about whether its library is installed."""
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def load(name: str, options: Mapping[str, str] | None = None) -> Backend:
    """The backend called `name`, with the user's options; run in several processes if they say so.

    Raises: as `load_plain`.
    """
    plain = {key: value for key, value in (options or {}).items() if key != REPLICAS.name}
    if options is None or REPLICAS.name not in options:
        return load_plain(name, plain)
    inner = load_plain(name, plain)
    if REPLICAS not in inner.options:
        inner.configure({REPLICAS.name: options[REPLICAS.name]})  # says that there is no such option
    return replicated(inner, options[REPLICAS.name], plain)


def load_plain(name: str, options: Mapping[str, str] | None = None) -> Backend:
    """The backend called `name` as one process, with the user's options.

    Raises: BackendUnavailableError if nobody registered it or its library cannot be imported; InputError for options
    that it does not take.
    """
    found = [entry for entry in entry_points(group=GROUP) if entry.name == name]
    if not found:
        raise BackendUnavailableError(f"there is no backend {name!r}", hint=f"choose one of: {', '.join(available())}")
    try:
        backend = found[0].load()
    except ImportError as error:
        extra = _EXTRAS.get(name)
        hint = f"pip install 'tensorrt-tuner[{extra}]'" if extra else "install the backend's own requirements"
        raise BackendUnavailableError(f"backend {name!r} cannot be loaded: {error}", hint=hint) from error
    instance: Backend = backend()
    if options:
        instance.configure(options)
    return instance
