"""The form of JSON that travels in a farm."""

from __future__ import annotations

from typing import Any


def fits(value: Any, form: Any) -> bool:
    """Whether a JSON value has a form.

    Args:
        value: The value.
        form: A type; a tuple of forms, one of which it has; a list of one form, which all entries have; a dict of keys
            to forms, or of `str` to the form of every entry.
    """
    if isinstance(form, tuple):
        return any(fits(value, each) for each in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(fits(each, form[0]) for each in value)
    if isinstance(form, dict):
        if not isinstance(value, dict):
            return False
        return all(fits(each, form.get(key, form.get(str, object))) for key, each in value.items())
    return isinstance(value, form) and (form is object or not isinstance(value, bool))
