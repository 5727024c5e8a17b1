"""The `auto` search: Bayesian optimization of many categorical knobs in few, noisy, failing trials.

The problem. A candidate sets 8 to 200 categorical knobs. Its log throughput is measured with an error of about one
per cent; it may fail, or be over a limit on accuracy. A trial costs minutes, so the sampler may think for a moment.

Screening. After the default come about 1.5 times the square root of the number of knobs of trials near the default:
rounds in which every knob leaves its default once, a fifth to a third of the knobs a trial (half of them in spaces
of more than a hundred), half as many where more than a third fails (screening.py). If the first round shows that
nothing goes wrong, the rest of the screen is balanced over all values instead.

Model of throughput. A Gaussian process over log throughput whose kernel has an additive part, all pairs of knobs,
and a residual on weighted Hamming distance (kernel.py). Parts share one relevance per knob, so that pairs and
residual trust the knobs that matter. Priors: half-Cauchy on the square root of a relevance, as in the horseshoe;
log-normal on the variances of parts and on the noise that is not known; the known variance of each measurement is
added to it. The mode of the posterior is found anew, from the same start each time (fit.py), so that a proposal
depends on the history alone. The slow tail is drawn in, so that a hopeless candidate does not set the scale.

Models of feasibility. Each limit that was broken at least once has a model of the same kind for the log of loss
over limit. Failures are group tests: a value or pair that stood in a candidate that ran is cleared, and what is
left shares the blame (culprits.py): that finds the one bad value among many after few trials. Beside it a model of
the same kind as of a loss, plus one for what failed and minus one for what ran: that finds what fails only together
with several others, defaults among them, as the graphs of a recorded network do.

Acquisition. In turn: expected improvement over the best posterior mean, with the deviation stretched by half
against the confidence of a single mode, and Thompson sampling of one function drawn exactly from the posterior
(draw.py). Both are multiplied by the probability to run and to be within all limits; small spaces are listed, large
ones climbed by one-knob changes (acquisition.py). Expected improvement climbs in Hamming balls of radius 3, 6, 12
and without bound around the incumbent, in turn; among more than a hundred knobs, without bound and from where all
means of single changes are best at once. A drawn function is climbed from where all its single changes are best at
once: knobs that are known to matter stand right, all others as good as randomly, so that such a trial goes on
screening what is not known. Without that, 200 knobs are learned a few at a time.

Far trials. Every eighth trial is the candidate that shows most combinations of three values for the first time,
among random ones that are most likely to be feasible: what pays together and hurts alone is found by covering
combinations and by nothing else. Once no change of the incumbent is expected to gain a quarter of what is worth a
trial, the model is doubted: trials alternate between far ones and the same model with no knob irrelevant.

Workers. Candidates at work are taken to come out as expected, which leaves no reason to propose them again nearby.

Stop advice. Not worth it is a search whose last twelve trials added less than half a per cent to the best posterior
mean, and whose most promising candidate anywhere is expected to gain less than a quarter of a per cent, feasibility
counted in.

What it does not do: replicate a candidate; use how fast an infeasible candidate was; know that knobs are ordered.

Sources: Baptista and Poloczek 2018 (BOCS), Oh et al. 2019 (COMBO), Wan et al. 2021 (CASMOPOLITAN), Dreczkowski et
al. 2023 (MCBO: trust region and model fit explain performance), Hellsten et al. 2024 (BaCO: feasibility, local
search), Xu 2003 (designs that cover combinations evenly), and those named in each module.
"""

from tuner.search.advice import Advice
from tuner.search.auto.config import AutoConfig, Prior
from tuner.search.auto.history import Seen
from tuner.search.auto.proposer import AutoProposer

__all__ = ["Advice", "AutoConfig", "AutoProposer", "Prior", "Seen"]
