"""Studies of the field with `offcert`, in a package of their own, `offcert-lab`.

Many methods and memory limits in one table (`campaign`), drawn (`comparisons`); searches for hard
problems and for contradictions of solvers (`hunts`), audits of other people's engines (`engines`)
and plans (`plans`), proofs for other people's checkers (`checkers`), the networks of the moDNN
paper (`modnn`), and the commands of all these (`commands`), which `offcert` finds by their names.
"""
