"""Headline: the verdict in a sentence that claims no more than the confirmation did. Pure.

Flow: gather.py has trials and confirmations of a context -> HERE -> HeadlineFacts, what people read first.
"""

from __future__ import annotations

from msgspec.structs import replace

from tuner.objective import Objective
from tuner.report.facts import Answer, ConfirmationFacts, FinalistFacts, HeadlineFacts, TrialFacts
from tuner.report.words import count, figure, interval, share, times
from tuner.stats import VerdictKind

_DEFAULTS = "the default's throughput"
OVERSTATES = "the best of many noisy measurements looks better than it is"


def headline(
    objective: Objective,
    default: TrialFacts | None,
    best: TrialFacts | None,
    confirmation: ConfirmationFacts | None,
    n_trials: int,
    build_only: bool = False,
) -> HeadlineFacts:
    """What may be said. `confirmation`: the one that decides, as `ContextFacts.confirmation`."""
    if n_trials == 0:
        return HeadlineFacts(Answer.NOTHING, "No candidate has been tried yet.", "There is no trial in this context.")
    if confirmation is not None and confirmation.state == "done":
        return _decided(confirmation)
    if best is None or best.ratio is None:
        return HeadlineFacts(
            Answer.NO_CANDIDATE,
            f"None of {count(n_trials, 'trial')} gave an engine within the limits, the default included."
            if default is None or default.value is None
            else "No feasible candidate has been found.",
            "Nothing can be shipped from this context; the failures below say what went wrong.",
        )
    if best.is_default:
        return HeadlineFacts(
            Answer.NO_BETTER,
            f"No feasible candidate looked better than the default in {count(n_trials, 'trial')}.",
            f"The default, at {figure(default.value if default else None, objective)}, is what to ship.",
            trial=best.number,
        )
    return _observed(objective, best, confirmation, n_trials, build_only)


def _observed(
    objective: Objective, best: TrialFacts, confirmation: ConfirmationFacts | None, n_trials: int, build_only: bool
) -> HeadlineFacts:
    found = HeadlineFacts(
        Answer.OBSERVED,
        "",
        "",
        speedup=best.ratio,
        candidate=best.candidate,
        changes=best.changes,
        trial=best.number,
    )
    if objective.is_timed:
        running = "" if confirmation is None else f" A confirmation is under way: {confirmation.n_pairs} pairs so far."
        return replace(
            found,
            answer=Answer.UNCONFIRMED,
            sentence=f"Not confirmed yet: in the search the best candidate looked {times(best.ratio)} {_DEFAULTS}.",
            basis=f"One measurement among {count(n_trials, 'trial')}: {OVERSTATES}. "
            f"Only a confirmation decides.{running}",
        )
    reached = figure(best.value, objective)
    if objective is Objective.ENGINE_SIZE:
        gain = share(1 - 1 / best.ratio) if best.ratio else "–"
        sentence = f"The smallest feasible engine has {reached}: {gain} smaller than the default's."
        basis = f"The size of one build, from {count(n_trials, 'trial')}; how fast it runs was not measured."
    else:
        sentence = f"The quickest feasible build took {reached}: {times(best.ratio)} as quick as the default's."
        basis = f"One measurement of a build among {count(n_trials, 'trial')}: {OVERSTATES}."
    return replace(found, sentence=sentence, basis=basis + (" Its outputs were not checked." if build_only else ""))


def _decided(found: ConfirmationFacts) -> HeadlineFacts:
    closest = _closest(found)
    basis = _basis(found)
    if closest is None:
        return HeadlineFacts(Answer.NOT_FASTER, f"Not faster: {found.reason}.", f"{basis} Keep the default.")
    facts = HeadlineFacts(
        Answer.UNDECIDED,
        "",
        basis,
        speedup=closest.speedup,
        low=closest.low,
        high=closest.high,
        candidate=closest.candidate,
        changes=closest.changes,
        trial=closest.trial,
    )
    has_interval = bool(closest.low) or closest.high is not None
    at = "" if found.confidence is None or not has_interval else f"{share(found.confidence)} interval "
    reached = f"{times(closest.speedup)} {_DEFAULTS} ({at}{interval(closest.low, closest.high)})"
    if found.verdict == VerdictKind.FASTER.value:
        return replace(facts, answer=Answer.FASTER, sentence=f"Faster: {reached}.")
    if found.verdict == VerdictKind.NOT_FASTER.value:
        sentence = f"Not faster by {share(found.min_gain)} or more: the closest finalist reached {reached}."
        return replace(facts, answer=Answer.NOT_FASTER, sentence=sentence, basis=f"{basis} Keep the default.")
    sentence = f"Undecided: the closest finalist is at {reached}."
    return replace(facts, sentence=sentence, basis=f"{_capital(found.reason)}. {basis} Nothing is claimed.")


def _closest(found: ConfirmationFacts) -> FinalistFacts | None:
    """The winner; without one the finalist that came closest."""
    judged = [one for one in found.finalists if one.speedup is not None]
    winner = next((one for one in judged if one.is_winner), None)
    return winner or max(judged, key=lambda one: one.speedup or 0.0, default=None)


def _basis(found: ConfirmationFacts) -> str:
    if not found.n_pairs:
        return "The confirmation took no process pair."
    many = len(found.finalists)
    all_of = "" if many == 1 else f"; the interval allows for all {many} finalists"
    least = f"the smallest gain that matters is {share(found.min_gain)}" if found.min_gain else "any gain would matter"
    return (
        f"Compared with the default of the same environment, rebuilt and restarted, timed in turn with fresh samples: "
        f"{count(found.n_pairs, 'process pair')}, {count(found.n_builds, 'build')} of a side; "
        f"{least}{all_of}."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
