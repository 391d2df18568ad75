"""A model with the inputs and outputs that its engine is to have."""

from __future__ import annotations

from trtconv.core.interface import Interface
from trtconv.graph.interface import retype
from trtconv.graph.light_file import light_model
from trtconv.graph.model import OnnxModel


def fit(model: OnnxModel, interface: Interface) -> None:
    """Gives a model the inputs and outputs that are asked for, and notes that in it.

    Args:
        model: The model, as it was loaded; it is changed.
        interface: What is asked for; nothing leaves all as it is.

    Raises:
        InputError: An input or output is not there, or cannot be what is asked for.
    """
    model.interface = interface
    # Loaded only here: most engines take and return what the model does.
    if interface.images is not None:
        from trtconv.graph.images import take_images

        model.images = take_images(model, interface.images)
    if interface.results:
        from trtconv.graph.results import give_results

        give_results(model, interface.results)
    retype(model, interface.io)


def reloaded(model: OnnxModel, *, light: bool = False) -> OnnxModel:
    """Reads a model's file again, and gives it the inputs and outputs that the model has.

    Args:
        light: Whether large weights are to stay in the file where they can, until they are looked at.

    Raises:
        InputError: The file is gone, or another one by now.
    """
    again = (light_model if light else OnnxModel.load)(model.path)
    fit(again, model.interface)
    return again
