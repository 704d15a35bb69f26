"""Options of a launch on other hosts than this machine."""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.launch.launch_request import to_request
from gaudi_launch.core.launch.saved_plan import own_part
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.secret_args import with_secret_moved

# a cluster's name where none is given
DEFAULT_NAME = "cluster"
# variables about the cards of this machine do not apply to others
_OWN_MACHINE = ("HABANA_VISIBLE_MODULES", "HABANA_VISIBLE_DEVICES", "HLS_MODULE_ID")


def request_of(options: LaunchOptions) -> Request:
    """Return the request of these options for other hosts than this machine.

    Raises LaunchError (USAGE) for an option about this machine.
    """
    # a saved plan may be of another machine
    typed = own_part(options).machine
    for given, flag in ((options.modules, "-m"), (typed, "--machine")):
        if given is not None:
            raise LaunchError("cluster.not_here", ExitCode.USAGE, flag=flag)
    request = with_secret_moved(to_request(options))
    if request.tuning != "auto":
        raise LaunchError("cluster.not_here", ExitCode.USAGE, flag="--tuning reference")
    environment = {
        name: value for name, value in request.environment.items() if name not in _OWN_MACHINE
    }
    return replace(request, environment=environment)
