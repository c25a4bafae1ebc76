"""Text from outside as a terminal may show it: nothing in it moves the cursor, hides or turns round what stands beside it."""

from __future__ import annotations

import unicodedata

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})  # controls, formats (bidi, zero width), surrogates, line separators


def safe(text: str) -> str:
    """Return *text* with every control, format and bidi character written as its escape."""
    return text if text.isascii() and text.isprintable() else "".join(map(_visible, text))


def shortened(text: str, chars_max: int) -> str:
    """Return *text*, its end cut off visibly where it is over *chars_max* characters."""
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def _visible(char: str) -> str:
    if unicodedata.category(char) not in HIDDEN:
        return char
    return char.encode("unicode_escape").decode("ascii")
