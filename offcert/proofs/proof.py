"""`Proof`: what a certificate holds so that a bound can be established again without a solver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, NamedTuple, Self

from offcert.core.documents import Fields
from offcert.core.result import Bound, Evidence
from offcert.proofs.forms import FORM, Form


class FieldRule(NamedTuple):
    """A field of a proof: its name in documents, its form, and whether it may be absent."""

    name: str
    form: Form
    optional: bool


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What verification is told besides the problem and the bound's value.

    Subclasses are frozen dataclasses whose fields are made by `offcert.proofs.forms`: from these
    follow the reader, the writer, the limits and the documentation. A bound that can be computed
    from the problem alone has no fields.
    """

    @classmethod
    def rules(cls) -> Iterator[FieldRule]:
        """Yield the fields."""
        for each in fields(cls):
            yield FieldRule(each.name, each.metadata[FORM], each.default is not MISSING)

    @classmethod
    def read(cls, details: Mapping[str, Any], place: str = "details") -> Self:
        """Return the proof that the details of a bound hold.

        Raises
        ------
        InputError
            One sentence that names the first field that is missing, wrong or unknown.
        """
        document = Fields(dict(details), place)
        values = {
            name: form.read(document, name)
            for name, form, optional in cls.rules()
            if not optional or name in details
        }
        document.finish()
        return cls(**values)

    def write(self) -> dict[str, Any]:
        """Return the details of a bound, as a JSON value; absent fields are left out."""
        values = [(name, form, getattr(self, name)) for name, form, _ in self.rules()]
        return {name: form.write(value) for name, form, value in values if value is not None}


class Provable:
    """What kinds of bounds have in common that can be established again without a solver.

    Attributes
    ----------
    method : str
        Its name in certificates.
    proof : type
        The dataclass of what a certificate holds for it.
    """

    method: str
    proof: type[Proof]

    evidence = Evidence.PROVED

    def bound(self, value: int, proof: Proof) -> Bound:
        """Return a proved bound of this kind.

        Parameters
        ----------
        value : int
            Ticks or bytes.
        proof : Proof
            Of the type `proof`.
        """
        if type(proof) is not self.proof:
            raise TypeError(f"a proof of {self.method} is a {self.proof.__name__}, not {proof!r}")
        return Bound(self.method, value, Evidence.PROVED, proof.write())
