"""Parts: what every section of the page is made of: tables, figure boxes, commands, candidates. Pure.

Flow: sections_*.py -> HERE -> html.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.report.advice import Command
from tuner.report.figures import Drawing
from tuner.report.html import Child, Markup, tag
from tuner.report.legend import legend

NUMBER, TEXT = "n", "t"  # mark a column of numbers, of sentences, in `table`
_WIDE = ("tradeoff", "contexts", "outcomes", "compared", "compared-progress")


def section(key: str, title: str, *children: Child, lead: str = "") -> Markup:
    """A section with its heading, and a sentence that says how to read it."""
    heading = tag("h2", title, id=f"{key}-title")
    return tag("section", heading, tag("p", lead, class_="lead") if lead else None, children, id=key,
               aria_labelledby=f"{key}-title")  # fmt: skip


def table(
    caption: str, head: Sequence[tuple[str, str]], rows: Sequence[Sequence[Child]], *, hide: bool = True
) -> Markup:
    """A table that scrolls inside its box. `head`: name and kind of each column; the first cell names its row."""
    heads = tag("tr", [tag("th", name, scope="col", class_=kind or None) for name, kind in head])
    kinds = [kind for _, kind in head]
    body = [
        tag(
            "tr",
            [
                tag("th", cell, scope="row", class_=kind or None)
                if place == 0
                else tag("td", cell, class_=kind or None)
                for place, (cell, kind) in enumerate(zip(row, kinds, strict=True))
            ],
        )
        for row in rows
    ]
    shown = tag("caption", caption, class_="hidden" if hide else None)
    return tag("div", tag("table", shown, tag("thead", heads), tag("tbody", body)), class_="scroll", tabindex=0,
               role="region", aria_label=caption)  # fmt: skip


def facts(pairs: Sequence[tuple[str, Child]]) -> Markup:
    """Names and what they are, a line each."""
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs], class_="facts")


def nothing(sentence: str) -> Markup:
    """What is said where there is nothing to show."""
    return tag("p", sentence, class_="nothing")


def drawing(one: Drawing, note: Child = None) -> Markup:
    """A box for a figure, with caption and words for those who cannot see it; a sentence where there is none."""
    caption = tag("figcaption", tag("strong", one.title), tag("span", note) if note else None)
    wide = " wide" if one.key in _WIDE else ""
    if one.figure is None:
        return tag("figure", caption, nothing(one.empty), class_=f"box{wide}")
    height = int(one.figure.layout.height)
    signs = legend(one.figure)
    plot = tag("div", class_="plot", data_figure=one.key, role="img", aria_label=one.alt, style=f"height:{height}px")
    return tag("figure", caption, signs, plot, class_=f"box{wide}", id=f"figure-{one.key}")


def grid(*children: Child) -> Markup:
    """Boxes side by side where there is room."""
    return tag("div", children, class_="grid")


def candidate(changes: Mapping[str, str]) -> Markup:
    """What a candidate changes, one knob after the other; long ones wrap."""
    if not changes:
        return tag("span", "default", class_="candidate muted")
    return tag(
        "span",
        [tag("span", tag("span", f"{name}="), tag("b", value), class_="change") for name, value in changes.items()],
        class_="candidate",
    )


def commands(found: Sequence[Command]) -> Markup:
    """Commands, each under what it is for."""
    return tag(
        "ol",
        [tag("li", tag("span", one.purpose), tag("pre", tag("code", one.text), tabindex=0)) for one in found],
        class_="commands",
    )


def badge(text: str, role: str) -> Markup:
    """A word in a coloured frame."""
    return tag("span", text, class_=f"badge {role}")


def folded(summary: str, *children: Child) -> Markup:
    """What is there for those who want to see it."""
    return tag("details", tag("summary", summary), children)
