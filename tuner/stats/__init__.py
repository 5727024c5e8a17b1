"""Statistics: samples in, summaries, corrections and verdicts out. Pure; nothing here knows a backend or a
database.

Flow: samples (with their origin) -> summaries, early_stop (while timing) -> noise, drift (through a study) ->
selection (who is a finalist) -> pairs, confirmation (who is faster) -> builds (what may be said of the
shipped file).
"""

from tuner.stats.builds import REPRODUCIBLE, BuildModel, Figure, Figures, figures, fit_builds
from tuner.stats.confirmation import Need, Step, Verdict, VerdictKind, grouped, judge, next_step
from tuner.stats.drift import DriftModel, fit_drift
from tuner.stats.early_stop import is_hopeless
from tuner.stats.effects import Effect, effects, top_knobs
from tuner.stats.errors import MixedSamplesError, PlanError, StatsError
from tuner.stats.noise import Level, Noise, detectable_gain, estimate_noise, pairs_needed
from tuner.stats.pairs import ConfirmationPlan, PairBlock, Side, interleaved_log_ratio, interleaved_order
from tuner.stats.samples import Provenance, Samples, Timing, require_alike
from tuner.stats.selection import Estimate, choose_finalists, shrunken, simplest_within_noise
from tuner.stats.summaries import Summary, median_interval, median_log_variance, summarize

__all__ = [
    "REPRODUCIBLE",
    "BuildModel",
    "ConfirmationPlan",
    "DriftModel",
    "Effect",
    "Estimate",
    "Figure",
    "Figures",
    "Level",
    "MixedSamplesError",
    "Need",
    "Noise",
    "PairBlock",
    "PlanError",
    "Provenance",
    "Samples",
    "Side",
    "StatsError",
    "Step",
    "Summary",
    "Timing",
    "Verdict",
    "VerdictKind",
    "choose_finalists",
    "detectable_gain",
    "effects",
    "estimate_noise",
    "figures",
    "fit_builds",
    "fit_drift",
    "grouped",
    "interleaved_log_ratio",
    "interleaved_order",
    "is_hopeless",
    "judge",
    "median_interval",
    "median_log_variance",
    "next_step",
    "pairs_needed",
    "require_alike",
    "shrunken",
    "simplest_within_noise",
    "summarize",
    "top_knobs",
]
