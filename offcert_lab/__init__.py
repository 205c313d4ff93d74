"""Studies of the field with `offcert`, in a package of their own, `offcert-lab`.

Searches for hard problems and for contradictions of solvers (`hunts`), audits of other people's
engines (`engines`) and plans (`plans`), comparisons of methods (`comparisons`), proofs for other
people's checkers (`checkers`), campaigns on a cluster (`cluster`), the networks of the moDNN paper
(`modnn`), networks as chains of stages (`stages`), and the commands of all these (`commands`),
which `offcert` finds by entry points.
"""
