"""Python's view of shared memory is C's declaration (``ftrma/native/shared.py``)."""

from __future__ import annotations

from typing import Any, get_args, get_origin, get_type_hints

import pytest

from ftrma.native import constants, shared

ffi = constants._ffi

STRUCTS = {
    "ftrma_bell": shared.Bell, "ftrma_rule": shared.Rule, "ftrma_proc": shared.Process,
    "ftrma_roles": shared.Roles, "ftrma_plan": shared.PlanPlace,
    "ftrma_spot": shared.Spot, "ftrma_mark": shared.Mark,
    "ftrma_slot": shared.Progress, "ftrma_ctl": shared.Control,
    "ftrma_vault_words": shared.VaultWords,
}


def base(hint: Any) -> Any:
    return getattr(hint, "__supertype__", hint)  # of a NewType


def agrees(hint: Any, ctype: Any) -> bool:
    """A type of Python is right for a field of C."""
    if ctype.kind == "array":
        kind = shared.Parts if ctype.item.kind == "struct" else shared.Array
        return get_origin(hint) is kind and agrees(*get_args(hint), ctype.item)
    if ctype.kind == "struct":
        return STRUCTS[ctype.cname.removeprefix("struct ")] is hint
    return base(hint) is (bytes if ctype.cname == "char" else int)


@pytest.mark.parametrize("struct", STRUCTS)
def test_fields_are_those_of_c(struct: str) -> None:
    """Law: each struct has the fields that C declares, in its order, with types that fit."""
    fields = ffi.typeof(f"struct {struct}").fields
    hints = get_type_hints(STRUCTS[struct])
    assert list(hints) == [name for name, _ in fields]
    wrong = [name for name, field in fields if not agrees(hints[name], field.type)]
    assert not wrong
