"""A plan of all remedies of a machine in a folder, and a stand-in of update-grub."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gaudi_launch.commands.doctor import remedies
from gaudi_launch.commands.doctor.remedies import Change
from gaudi_launch.core.doctor.findings import Wants
from gaudi_launch.core.doctor.runner import quick
from gaudi_launch.core.host.host_config import read_live
from gaudi_launch.core.host.read import read_host


def plan(root: Path) -> list[Change]:
    config = read_live(root)
    return remedies.planned(quick(read_host(root), config), config, Wants())


# reads what Ubuntu's reads, in its order, and writes the kernel's line
UPDATE_GRUB = """#!/bin/sh
root=${0%/usr/sbin/*}
for file in "$root/etc/default/grub" "$root"/etc/default/grub.d/*.cfg; do
    [ -e "$file" ] && . "$file"
done
if [ -e "$root/broken" ]; then echo "no space left" >&2; exit 1; fi
echo "ro $GRUB_CMDLINE_LINUX_DEFAULT" > "$root/boot/grub/grub.cfg"
"""


def add_update_grub(root: Path) -> Path:
    """Write the stand-in and run it; return the boot menu."""
    program, menu = root / "usr/sbin/update-grub", root / "boot/grub/grub.cfg"
    for folder in (program.parent, menu.parent):
        folder.mkdir(parents=True, exist_ok=True)
    program.write_text(UPDATE_GRUB)
    program.chmod(0o755)
    subprocess.run([program], check=True)
    return menu
