"""The page on operations shows the tables that the code has."""

from __future__ import annotations

from scripts import operations_table


def test_the_page_on_operations_shows_the_tables_in_the_code() -> None:
    text = operations_table.PAGE.read_text(encoding="utf-8")
    assert operations_table.page(text) == text
    assert text.count("<!-- generated: ") == 2
