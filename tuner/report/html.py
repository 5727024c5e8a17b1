"""HTML: elements from Python, everything escaped unless it is markup already. Pure.

Flow: the sections of a page -> HERE -> text of a page.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any


class Markup(str):
    """Text that is HTML: it is not escaped again."""

    __slots__ = ()


Child = str | Markup | int | None | Iterable["Child"]
_EMPTY = frozenset({"meta", "link", "br", "hr", "img", "input", "wbr"})


def tag(element: str, /, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """An element. `class_="a"` is class, `data_key=` is data-key; None and False leave an attribute out."""
    words = [element]
    for key, value in attributes.items():
        written = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(written)
        elif value is not None and value is not False:
            words.append(f'{written}="{html.escape(str(value))}"')
    opened = f"<{' '.join(words)}>"
    return Markup(opened if element in _EMPTY else f"{opened}{join(children)}</{element}>")


def join(children: Child) -> Markup:
    """Children one after the other, text escaped."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, str | int):
        return Markup(html.escape(str(children)))
    return Markup("".join(join(child) for child in children))


def script_json(content: Any) -> Markup:
    """JSON to stand in a script element: it cannot end it, nor begin a comment, whatever strings it holds."""
    return safe_json(json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def safe_json(text: str) -> Markup:
    """JSON text made harmless: `<`, `>`, `&` and JavaScript's line ends are written as escapes."""
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def script(content: str, **attributes: str) -> Markup:
    """A script element. Raises: ValueError for content that would end it: ours never does."""
    lowered = content.lower()
    if "</script" in lowered or "<!--" in lowered:
        raise ValueError("this script would end its own element")
    return Markup(f"{tag('script', **attributes).removesuffix('</script>')}{content}</script>")
