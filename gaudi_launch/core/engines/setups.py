"""Installations by the names that users write, and the setup of the demo model."""

from __future__ import annotations

from collections.abc import Callable

from gaudi_launch.core.base.members import member
from gaudi_launch.core.engines.entries import demo_engine, entry, installation, is_ray
from gaudi_launch.core.engines.install.installation import ImageRecipe, StepInstallation


def image_recipe(name: str) -> ImageRecipe | None:
    """Return the recipe of the image that ``setup NAME --in docker`` builds.

    Return None for an engine with a profile, which names its images.
    """
    built = entry(name).built
    if not built:
        return None
    recipe: ImageRecipe = member(f"gaudi_launch.{built}")
    return recipe


def setup_image(name: str) -> str | None:
    """Return the name of the image of `image_recipe`."""
    recipe = image_recipe(name)
    if recipe is None:
        return None
    return recipe.image


def made_by_steps(name: str) -> StepInstallation:
    """Return an entry of `INSTALLATIONS`, or that of an engine, imported now."""
    made = installation(name)
    assert isinstance(made, StepInstallation), name
    return made


def set_up_demo(engine: str | None, say: Callable[[str], None]) -> None:
    """Install the demo model and its engine. Raises LaunchError."""
    embedded = made_by_steps(demo_engine("auto"))
    embedded.check_launch()
    outer = (engine or "auto").partition(":")[0]
    if is_ray(outer):
        around = made_by_steps(outer)
        if not around.is_ready():
            around.setup(say)
    if embedded.missing(demo=True):
        embedded.setup(say)
