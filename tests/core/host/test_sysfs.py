"""Cards as the driver's files show them."""

from gaudi_launch.core.host.files import Imagined
from gaudi_launch.core.host.sysfs import read_cards


def test_the_drivers_name_of_a_card_counts_where_its_pci_id_is_unknown() -> None:
    device = "sys/class/accel/accel0/device"
    files = Imagined({f"{device}/vendor": "0x1da3", f"{device}/device_type": "GAUDI3"})
    cards = read_cards(files)
    (card,) = cards
    card.settle()
    assert (card.get("product"), card.sources["product"]) == ("HL-325", "sysfs device_type")
