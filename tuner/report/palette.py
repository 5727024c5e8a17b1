"""Palette: the colours of a report, light and dark, and its font; for page and figures alike.

Flow: style.css has them as variables, figures use the light ones -> page.js exchanges light and dark in a figure,
colour by colour, so no two roles share a colour. Safe for the colour-blind (after Okabe and Ito, Color Universal
Design, 2008); text has a contrast of 4.5 and more on paper, everything else that tells something 3 and more.
"""

from __future__ import annotations

LIGHT = {
    "page": "#f5f6f8",
    "paper": "#ffffff",
    "ink": "#1a2129",
    "muted": "#56616d",
    "line": "#c9d0d8",
    "grid": "#e8ebef",
    "band": "#dcebf6",
    "feasible": "#0b66a8",
    "rejected": "#b84a0c",
    "failed": "#6e7883",
    "winner": "#04785a",
    "second": "#8a3f82",
    "third": "#8a6200",
}
DARK = {
    "page": "#12161b",
    "paper": "#1a1f25",
    "ink": "#e7ebef",
    "muted": "#a3adb8",
    "line": "#46505b",
    "grid": "#2b323a",
    "band": "#1e3a52",
    "feasible": "#6db3ec",
    "rejected": "#f1935a",
    "failed": "#98a3ae",
    "winner": "#42cf9f",
    "second": "#d898cf",
    "third": "#dfb23f",
}
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Noto Sans", sans-serif'
