"""Page: a report as one HTML file that needs nothing else: text first, then plotly once, figures drawn when idle.

Flow: StudyFacts -> sections_*.py -> HERE -> text of the file. Several studies make a page that compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from plotly.offline import get_plotlyjs

from tuner.report import sections_compare, sections_place, sections_result, sections_search
from tuner.report.facts import StudyFacts
from tuner.report.figures import Drawing, drawings, lineage_drawing
from tuner.report.html import Child, Markup, safe_json, script, script_json, tag
from tuner.report.palette import DARK, FONT, LIGHT
from tuner.report.parts import nothing, section

# Nothing is loaded from anywhere, and nothing is sent: browsers hold the page to it.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)
_LINKS = (
    ("verdict", "Verdict"),
    ("ship", "Ship"),
    ("accuracy", "Accuracy"),
    ("search", "Search"),
    ("knobs", "Knobs"),
    ("outcomes", "Failures"),
    ("machine", "Noise"),
    ("confirmation", "Confirmation"),
    ("lineage", "Lineage"),
    ("environment", "Environment"),
)


def report_html(studies: Sequence[StudyFacts]) -> str:
    """The page of a study, or of several side by side."""
    return page(studies[0]) if len(studies) == 1 else comparison(studies)


def page(study: StudyFacts) -> str:
    """The report of a study."""
    context = study.context
    drawn: list[Drawing] = []
    if context is None:
        why = "The study has not been opened in any environment yet: there is nothing to report."
        parts: list[Child] = [section("verdict", "Verdict", nothing(why)), sections_place.environment(study, None)]
    else:
        drawn = [*drawings(context), lineage_drawing(study)]
        parts = [
            sections_result.verdict(study, context),
            sections_result.ship(study, context),
            sections_search.tradeoff(context),
            sections_search.progress(context),
            sections_search.knobs(context),
            sections_search.failures(context),
            sections_place.machine(context),
            sections_result.confirmation(context),
            sections_place.lineage(study),
            sections_place.environment(study, context),
            sections_search.trials(context),
        ]
    about = [study.model] if context is None else [study.model, context.place]
    links = _LINKS if context is not None else ()
    return _whole(study.name, " · ".join(about), [study], links, parts, drawn)


def comparison(studies: Sequence[StudyFacts]) -> str:
    """Several studies on one page."""
    drawn = sections_compare.compare_drawings(studies)
    title = "Comparison of " + ", ".join(one.name for one in studies)
    return _whole(title, f"{len(studies)} studies", studies, (), sections_compare.sections(studies, drawn), drawn)


def _whole(
    title: str,
    about: str,
    studies: Sequence[StudyFacts],
    links: Sequence[tuple[str, str]],
    parts: Sequence[Child],
    drawn: Sequence[Drawing],
) -> str:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"tensorrt-tuner {studies[0].tuner_version}"),
        tag("title", f"{title} – tuner report"),
        Markup(f"<style>{_variables()}{_asset('style.css')}</style>"),
        script(_asset("theme.js")),
    )
    switch = tag("button", "Theme", type="button", id="theme", class_="switch", hidden=True)
    made = f"made {studies[0].made_at} by tensorrt-tuner {studies[0].tuner_version}"
    banner = tag(
        "header",
        tag("div", tag("p", "tuner report", class_="brand"), switch, class_="bar"),
        tag("h1", title),
        tag("p", about, class_="about"),
        tag("nav", tag("ul", [tag("li", tag("a", word, href=f"#{key}")) for key, word in links]), aria_label="Sections")
        if links
        else None,
    )
    figures = {one.key: one.figure for one in drawn if one.figure is not None}
    inside = ",".join(f"{script_json(key)}:{safe_json(str(one.to_json()))}" for key, one in figures.items())
    scripts = [
        script(f"{{{inside}}}", type="application/json", id="figures"),
        script(script_json({"light": LIGHT, "dark": DARK}), type="application/json", id="palette"),
        # Kept as text, so that the words are on the screen before it is read.
        script(get_plotlyjs(), type="text/plain", id="plotly") if figures else None,
        script(_asset("page.js")),
    ]
    without = tag("noscript", tag("p", "Figures need JavaScript; everything else is here.", class_="nothing"))
    body = tag("body", banner, tag("main", without, parts), tag("footer", tag("p", made)), scripts)
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _variables() -> str:
    light, dark = (";".join(f"--{name}:{value}" for name, value in one.items()) for one in (LIGHT, DARK))
    return (
        f":root{{{light};--font:{FONT}}}"
        f"@media (prefers-color-scheme: dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f":root[data-theme=dark]{{{dark}}}@media print{{:root:root:root{{{light}}}}}"
    )


def _asset(name: str) -> Markup:
    return Markup(files("tuner.report").joinpath(name).read_text(encoding="utf-8"))
