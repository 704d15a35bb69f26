"""Single settings of a machine, each from the files that show it."""

from __future__ import annotations

import pytest

from gaudi_launch.host import config_files as settings
from gaudi_launch.host.files import Imagined

CPU = "sys/devices/system/cpu"


def test_cpus_by_governor_and_by_driver() -> None:
    files = Imagined(
        {
            f"{CPU}/cpu0/cpufreq/scaling_governor": "performance\n",
            f"{CPU}/cpu0/cpufreq/scaling_driver": "intel_pstate\n",
            f"{CPU}/cpu1/cpufreq/scaling_governor": "powersave\n",
            f"{CPU}/cpu2/cpufreq/scaling_governor": "performance\n",
            f"{CPU}/cpu2/cpufreq/scaling_driver": "acpi-cpufreq\n",
            f"{CPU}/cpu3/topology/core_id": "0\n",
        }
    )
    assert settings.cpufreq(files) == (
        {"performance": "0,2", "powersave": "1"},
        {"acpi-cpufreq": "2", "intel_pstate": "0"},
    )


def test_cpus_by_idle_state_that_is_enabled() -> None:
    files = Imagined(
        {
            f"{CPU}/cpu0/cpuidle/state0/name": "POLL\n",
            f"{CPU}/cpu0/cpuidle/state0/disable": "0\n",
            f"{CPU}/cpu0/cpuidle/state1/name": "C6\n",
            f"{CPU}/cpu0/cpuidle/state1/disable": "1\n",
            f"{CPU}/cpu0/cpuidle/state2/disable": "0\n",
            f"{CPU}/cpu1/cpuidle/state0/name": "POLL\n",
            f"{CPU}/cpu1/cpuidle/state1/name": "C1\n",
        }
    )
    assert settings.idle_states(files) == {"POLL": "0-1", "C6": "", "C1": "1"}


def test_the_first_known_number_counts() -> None:
    assert [settings.first(None, 0, 5), settings.first(None, None)] == [0, None]
    assert [settings.words(None), settings.words(" a  b ")] == [None, ("a", "b")]


def test_assignments_are_read_without_quotes_and_the_last_one_counts() -> None:
    text = "A=1\n B = x\n# C=3\nD='d d'\nE=\"e=f\"\nA=2\nF\n"
    assert settings.assignments(text) == {"A": "2", "D": "d d", "E": "e=f"}


def test_the_kernel_arguments_of_grub_are_of_two_variables() -> None:
    text = 'GRUB_CMDLINE_LINUX_DEFAULT="quiet splash"\nGRUB_CMDLINE_LINUX="iommu=pt"\n'
    grubs = [{"etc/default/grub": text}, {"etc/default/grub": "A=1\n"}, {}]
    found = [settings.grub(Imagined(files)) for files in grubs]
    assert found == [("iommu=pt", "quiet", "splash"), (), None]


def test_the_selected_value_of_a_list_is_in_brackets() -> None:
    texts = ("always [madvise] never", "always", None)
    assert [settings.bracketed(text) for text in texts] == ["madvise", None, None]


def test_a_limit_is_the_soft_one() -> None:
    text = "Limit   Soft Limit  Hard Limit\nMax open files  1024  4096 files\n"
    files = Imagined({"proc/self/limits": text})
    found = [settings.limit(files, name) for name in ("Max open files", "Max locked memory")]
    assert found == ["1024", None]
    assert settings.limit(Imagined({}), "Max open files") is None


@pytest.mark.parametrize(
    ("mounts", "mib"),
    [
        ("tmpfs /dev/shm tmpfs size=3145728 0 0\n", 3),
        ("tmpfs /dev/shm tmpfs rw,size=4096k,mode=1 0 0\n", 4),
        ("tmpfs /dev/shm tmpfs rw,size=5m 0 0\n", 5),
        ("ramfs /dev/shm ramfs size=6g 0 0\n", 6144),
        ("tmpfs /dev/shm tmpfs size=25% 0 0\n", 256),
        # the kernel's default is half of the memory
        ("tmpfs /dev/shm tmpfs rw,maxsize=5m 0 0\n", 512),
        ("ext4 /dev/shm ext4 size=5m 0 0\n", None),
        ("tmpfs /tmp tmpfs size=5m 0 0\ntmpfs /dev/shm\ntmpfs /dev/shm tmpfs size=7m\n", 7),
        ("", None),
    ],
)
def test_the_size_of_shared_memory_is_in_mib(mounts: str, mib: int | None) -> None:
    memory = {"proc/meminfo": "MemTotal: 1048576 kB\n"}
    assert settings.shm_mib(Imagined({"proc/mounts": mounts, **memory})) == mib
    assert settings.shm_mib(Imagined({"proc/self/mounts": mounts, **memory})) == mib


@pytest.mark.parametrize("options", ["rw", "size=50%"])
def test_a_share_of_unknown_memory_is_unknown(options: str) -> None:
    mounts = f"tmpfs /dev/shm tmpfs {options} 0 0\n"
    assert settings.shm_mib(Imagined({"proc/mounts": mounts})) is None


def test_the_kernel_modules_that_cards_need() -> None:
    text = (
        "nvme 1 0 - Live 0x0\nib_uverbs 1\n\nhabanalabs_cn 1 2\nhabanalabs 1\nib_core 1\nib_x 1\n"
    )
    assert settings.modules(Imagined({"proc/modules": text})) == (
        "habanalabs",
        "habanalabs_cn",
        "ib_core",
        "ib_uverbs",
    )
    assert settings.modules(Imagined({})) is None


@pytest.mark.parametrize("place", ["updates/dkms", "extra", "updates", "weak-updates"])
def test_a_module_is_installed_for_the_running_kernel(place: str) -> None:
    kernel = {"proc/sys/kernel/osrelease": "6.8.0\n"}
    built = {f"lib/modules/6.8.0/{place}/habanalabs.ko.zst": ""}
    other = {f"lib/modules/6.8.0/{place}/other.ko": ""}
    older = {f"lib/modules/5.15/{place}/habanalabs.ko": ""}
    found = [
        settings.module_built(Imagined(files))
        for files in ({**kernel, **built}, {**kernel, **other}, {**kernel, **older}, built)
    ]
    assert found == [True, False, None, None]


def test_the_versions_of_packages_that_dpkg_has_installed() -> None:
    status = (
        "Package: habanalabs-dkms\nStatus: install ok installed\nVersion: 1.22.1-6\n"
        "Description: driver\n of: cards\n\n"
        "Package: habanatools\nStatus: deinstall ok config-files\nVersion: 1.20.0\n\n"
        "Package: habanalabs-thunk\nStatus: install ok installed\n\n"
        "Package: bash\nStatus: install ok installed\nVersion: 5\n\n"
        "Package: habanalabs-qual\nStatus: install ok installed\nVersion: 1: 2\n"
    )
    assert settings.packages(Imagined({"var/lib/dpkg/status": status})) == {
        "habanalabs-dkms": "1.22.1-6",
        "habanalabs-qual": "1: 2",
    }


def test_the_cards_on_the_pci_bus_are_of_one_vendor() -> None:
    bus = "sys/bus/pci/devices"
    files = Imagined(
        {
            f"{bus}/0000:19:00.0/vendor": "0x1da3\n",
            f"{bus}/0000:1a:00.0/vendor": "1da3\n",
            f"{bus}/0000:1b:00.0/vendor": "0x8086\n",
        }
    )
    assert settings.pci_devices(files) == ("0000:19:00.0", "0000:1a:00.0")
    assert settings.pci_devices(Imagined({})) is None


def test_the_nodes_of_the_cards_are_those_of_the_newer_driver_first() -> None:
    old = {"dev/hl1": "", "dev/hl0": "", "dev/hl_controlD0": ""}
    new = {"dev/accel/accel1": "", "dev/accel/accel_controlD0": "", "dev/accel/by-path": ""}
    assert settings.device_nodes(Imagined({**old, **new})) == [
        "dev/accel/accel1",
        "dev/accel/accel_controlD0",
    ]
    assert settings.device_nodes(Imagined(old)) == ["dev/hl0", "dev/hl1"]


def test_a_program_is_looked_for_on_path_and_then_in_the_usual_folders() -> None:
    files = Imagined(
        {"usr/bin/docker": "", "sbin/grubby": "", "bin/podman": "", "usr/local/bin/podman": ""}
    )
    nothing: dict[str, str] = {}
    inside = {"docker": "/usr/bin/docker", "podman": "/usr/local/bin/podman"}
    assert settings.programs(files, nothing.get) == {**inside, "grubby": "/sbin/grubby"}
    on_path = {"docker": "/opt/docker", "hl-smi": "/opt/hl-smi"}
    assert settings.programs(files, on_path.get) == {
        **inside,
        "grubby": "/sbin/grubby",
        **on_path,
    }


def test_the_runtimes_of_docker_or_why_they_cannot_be_read() -> None:
    class Locked(Imagined):
        def text(self, path: str) -> None:
            return None

    name = "etc/docker/daemon.json"
    assert settings.docker_runtimes(Imagined({})) == ({}, None)
    assert settings.docker_runtimes(Imagined({name: ""})) == ({}, None)
    assert settings.docker_runtimes(Imagined({name: '{"debug": true}'})) == ({}, None)
    assert settings.docker_runtimes(Locked({name: "{}"})) == (None, "unreadable")
    good = '{"runtimes": {"habana": {"path": "/usr/bin/h"}, "other": {}}}'
    assert settings.docker_runtimes(Imagined({name: good})) == (
        {"habana": "/usr/bin/h", "other": ""},
        None,
    )
    runtimes, problem = settings.docker_runtimes(Imagined({name: "{"}))
    assert runtimes is None
    assert problem is not None and problem.startswith("Expecting property name")


def test_a_library_is_the_one_with_the_most_exact_version() -> None:
    files = Imagined(
        {
            "a/libfabric.so": "",
            "a/libfabric.so.1": "",
            "b/libfabric.so.1.20": "",
            "b/libfabric.some-longer-name": "",
            "c/libfabric.so.1.20.99": "",
        }
    )
    folders = (("a", "b"), ("none", "a"), ("none",))
    assert [settings.library(files, each, "libfabric.so") for each in folders] == [
        "/b/libfabric.so.1.20",
        "/a/libfabric.so.1",
        None,
    ]


def test_ports_that_listen_are_of_both_protocols() -> None:
    line = "   {}: {} 00000000:0000 {} 00000000:00000000\n"
    tcp = "head\n" + line.format(0, "0100007F:1F90", "0A") + line.format(1, "0100007F:1F91", "01")
    tcp6 = "head\n" + line.format(0, "0" * 32 + ":0050", "0A")
    tables = {"proc/net/tcp": tcp, "proc/net/tcp6": tcp6}
    assert settings.listening(Imagined(tables)) == (80, 8080)
    assert settings.listening(Imagined({"proc/net/tcp6": tcp6 + tcp6})) == (80,)
    assert settings.listening(Imagined({"proc/net/tcp": "head\n"})) == ()
    assert settings.listening(Imagined({})) is None


def test_a_path_is_on_the_last_of_the_longest_mounts() -> None:
    mounts = (
        "/dev/a / ext4 rw\n/dev/b /data xfs rw\nc /data nfs4 rw\nshort /data\n"
        "d /data/my\\040models lustre rw\ne /dat tmpfs rw\n"
    )
    paths = ("/", "/data", "/data/x", "/database", "/data/my models/m", "/etc")
    kinds = " ".join(str(settings.mount_kind(mounts, path)) for path in paths)
    assert kinds == "ext4 nfs4 nfs4 ext4 lustre ext4"
    assert settings.mount_kind("", "/") is None
