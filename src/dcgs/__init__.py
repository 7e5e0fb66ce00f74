"""Decentralized, projection-free optimization.

m agents on a graph, each with private data, minimize a sum of smooth convex losses over a set that is known
through a linear minimization oracle. Agents send messages to their neighbors only. Start at :func:`minimize`.

The public names are those of :mod:`dcgs.api`. They are imported at their first use, because the command
``dcgs`` must handle signals before NumPy is imported.
"""

__version__ = "0.15.0"

TYPE_CHECKING = False  # typing's own would be imported for this alone
if TYPE_CHECKING:
    from dcgs.api import *  # of its list of names mypy knows the first part only
    from dcgs.inner import *
    from dcgs.methods import *
    from dcgs.objectives import *
    from dcgs.sets import *

    __all__: list[str]
else:

    def __getattr__(name):
        from importlib import import_module

        import_module("dcgs.processes.watchdog").start()  # of an MPI process; before NumPy makes it large
        api = import_module("dcgs.api")
        if name == "Path":  # an older name; it is in no list, since a star import would hide pathlib's
            return api.RadiusPath
        if name != "__all__" and name not in getattr(api, "__all__", ()) and name not in globals():
            raise AttributeError(f"module 'dcgs' has no attribute {name!r}")
        globals().update({each: getattr(api, each) for each in ("__all__", *api.__all__)})
        return globals()[name]

    def __dir__():
        return sorted({*globals(), *__getattr__("__all__")})
