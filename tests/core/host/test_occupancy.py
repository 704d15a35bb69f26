"""Who uses a card: the signs, the strongest first, and what their absence shows."""

from __future__ import annotations

from gaudi_launch.core.base.locks import Holder
from gaudi_launch.core.host.files import Imagined
from gaudi_launch.core.host.occupancy import OpenFiles, read_open_files


def test_the_processes_that_have_a_node_open_are_read_from_proc() -> None:
    class OneHidden(Imagined):
        def hidden(self, path: str) -> bool:
            return path == "proc/30/fd"

    files = OneHidden(
        {
            "etc/passwd": "root:x:0:0\nodd\nana:x:1000:1000\n",
            "proc/9/cmdline": "python3\0-m\0vllm\x07\0",
            "proc/9/status": "Name:\tpython3\nUid:\t1000\t0\t0\t0\n",
            "proc/10/cmdline": "",
            "proc/10/comm": "worker\n",
            "proc/10/status": "Uid:\t1001\t1001\n",
            "proc/11/cmdline": "/usr/bin/hl-smi\0-L\0",
            "proc/12/cmdline": "node_exporter\0",
            "proc/13/cmdline": "python3\0",
            "proc/14/cmdline": "sh\0",
            "proc/30/cmdline": "secret\0",
            "proc/self/cmdline": "x\0",
        },
        {
            "proc/9/fd/3": "/dev/accel/accel2",
            "proc/9/fd/4": "/dev/accel/accel11",
            "proc/9/fd/5": "/dev/accel/accel2",
            "proc/10/fd/0": "/dev/hl2",
            # a monitor has the control node open, and the card's node only to use it
            "proc/11/fd/3": "/dev/accel/accel_controlD2",
            "proc/12/fd/3": "/dev/accel/accel3",
            "proc/13/fd/3": "/dev/hl_controlD4",
            "proc/14/fd/3": "/dev/accel/accel2x",
            "proc/self/fd/3": "/dev/accel/accel5",
        },
    )
    ana = Holder(9, "python3 -m vllm?", "ana")
    assert read_open_files(files) == OpenFiles(
        holders={
            2: [ana, Holder(10, "worker", "1001")],
            11: [ana],
            3: [Holder(12, "node_exporter", "")],
            4: [Holder(13, "python3", "")],
        },
        processes=7,
        hidden=1,
    )
