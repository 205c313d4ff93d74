"""The exceptions that offcert raises on purpose."""


class OffcertError(Exception):
    """Base of every exception that offcert raises on purpose."""


class InputError(OffcertError, ValueError):
    """Bad input: the message is one sentence that names the field, the place and the value.

    The command line turns it into exit code 2.
    """


class PlanError(OffcertError):
    """A plan that cannot be executed on its problem; the message says where it gets stuck."""


class MethodError(OffcertError):
    """A method that does not apply to a problem, or found no plan; the message says why."""


class NoPlanError(MethodError):
    """A heuristic that applies, but found no plan where one may well exist."""


class MissingPackageError(OffcertError, ImportError):
    """An optional package that is not installed; the message says how to install it."""
