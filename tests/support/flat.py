"""Settings of all kinds in one dictionary, for tests that share some of them."""

from dataclasses import fields, replace

import veilmap as vm


def grouped(settings, **kinds):
    """The settings with those of each of these classes put into one object of it."""
    settings = dict(settings)
    for group, kind in kinds.items():
        own = {field.name for field in fields(kind)} & settings.keys()
        if own:
            given = {name: settings.pop(name) for name in own}
            settings[group] = replace(settings.get(group) or kind(), **given)
    return settings


def train(data, grid, **settings):
    """Train; settings of the model and of the recording are put where they belong."""
    return vm.train(data, grid, **grouped(settings, model=vm.Model, recording=vm.Recording))
