"""Reads recipes and model files like owt."""
import pathlib
import tomllib


def read_recipe(path):
    """The recipe with its model included, or a model file as {"model": ...}."""
    path = pathlib.Path(path)
    with open(path, "rb") as file:
        recipe = tomllib.load(file)
    if "layer" in recipe:
        return {"model": recipe}
    if isinstance(recipe["model"], str):
        with open(path.parent / recipe["model"], "rb") as file:
            recipe["model"] = tomllib.load(file)
    return recipe
