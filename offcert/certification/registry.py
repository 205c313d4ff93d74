"""Every method for schedules by name: those that a user can run alone, and steps of ladders."""

from __future__ import annotations

from offcert.certification.joint_methods import (
    JOINT_METHODS,
    warm_joint_search,
    warm_rematerialisation,
)
from offcert.certification.method import Choice, Method, called
from offcert.certification.option import SEPARATOR, read_options
from offcert.certification.own_method import names_own, own_method
from offcert.certification.plan_methods import PLAN_METHODS
from offcert.certification.schedule_methods import (
    BOUNDS,
    SCHEDULE_METHODS,
    warm_set_search,
)
from offcert.certification.search_steps.bounds import climb_combinatorial
from offcert.certification.search_steps.deadlines import climb_limits, descend_sinking, halve_limits
from offcert.certification.search_steps.descents import descend_pieces, descend_set_search
from offcert.certification.search_steps.joint import (
    bound_computing,
    descend_first,
    descend_sequentially,
    descend_whole,
)
from offcert.certification.warm import warm_plans
from offcert.core.errors import InputError
from offcert.core.messages import meant, show

METHODS: dict[str, Method] = called(
    {"bounds": BOUNDS, **PLAN_METHODS, **SCHEDULE_METHODS, **JOINT_METHODS}
)

# Methods that ladders run besides: of little use alone, or always added.
STEPS: dict[str, Method] = METHODS | called(
    {
        "combinatorial-bounds": Method(climb_combinatorial),
        "pieces": Method(descend_pieces, warm=(warm_set_search,)),
        "set-search": Method(descend_set_search, warm=(warm_set_search,)),
        "computing-time": Method(bound_computing),
        "everything-once": Method(descend_whole),
        "first-plans": Method(
            descend_first, warm=(warm_plans, warm_joint_search, warm_rematerialisation)
        ),
        "sequential-least-memory": Method(descend_sequentially),
        "sinking-search": Method(descend_sinking, warm=(warm_plans, warm_joint_search)),
        "bounds-at-limits": Method(climb_limits),
        "searches-at-limits": Method(halve_limits),
    }
)


def method_called(text: object) -> Choice:
    """Return a method by name, with the options behind it: ``"dynprog:slots=2000"``.

    A function of a user's own is one, too: ``"package.module:function"``.
    """
    if is_own(text):
        return Choice(str(text), own_method(str(text)), {})
    name, *parts = text.split(SEPARATOR) if isinstance(text, str) else [""]
    if name not in METHODS:
        hint = meant(name, METHODS) if isinstance(text, str) else ""
        raise InputError(f"method must be one of {', '.join(METHODS)}, not {show(text)}{hint}")
    method = METHODS[name]
    return Choice(name, method, read_options(name, method.takes, parts))


def is_own(text: object) -> bool:
    """Return whether a text names a function of a user's own, and no method with an option."""
    return names_own(text) and str(text).partition(SEPARATOR)[0] not in METHODS
