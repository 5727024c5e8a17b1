"""The `auto` search."""

from tuner.search.auto.config import AutoConfig, Prior
from tuner.search.auto.history import Seen
from tuner.search.auto.proposer import Advice, AutoProposer

__all__ = ["Advice", "AutoConfig", "AutoProposer", "Prior", "Seen"]
