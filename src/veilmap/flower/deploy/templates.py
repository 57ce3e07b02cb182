"""The text files of a federation."""

import base64
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# The app of a run: the only one that nodes answer to.
COMPONENTS = {"serverapp": "veilmap.flower.app:server", "clientapp": "veilmap.flower.app:client"}


def node_config(settings: Mapping[str, Any]) -> str:
    """A node's configuration as `flower-supernode --node-config` takes it."""
    about = "# Read when the node starts: start it again after a change.\n"
    return f"{about}{_table(settings)}\n"


def app(settings: Mapping[str, Any], version: str) -> str:
    """The app's pyproject.toml: our components, the run's settings."""
    config, components = _table(settings), _table(COMPONENTS)
    return f"""\
# The app that `flwr run` starts: veilmap's own server and client, installed on every host.

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "veilmap-federation"
version = "{version}"
description = "A radio map from measurements that stay on their devices"
license = "Apache-2.0"
dependencies = ["veilmap[flower]"]

[tool.hatch.build.targets.wheel]
bypass-selection = true

[tool.flwr.app]
publisher = "veilmap"

[tool.flwr.app.components]
{components}

[tool.flwr.app.config]
{config}
"""


def _table(values: Mapping[str, Any]) -> str:
    return "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())


def credentials(address: str, token: str) -> dict[str, str]:
    """What Flower's commands show the SuperLink: the operator's token.

    Flower looks an account up by the SuperLink's address and sends its access token along.
    """
    account = {"authn-type": "oidc", "oidc-access-token": token, "oidc-refresh-token": "none"}
    return {
        f"flower.account-auth.{address}.{name}": base64.b64encode(value.encode()).decode()
        for name, value in account.items()
    }


def flower_config(link: str, address: str, root: Path) -> str:
    """Flower's own configuration: where the operator's commands find the SuperLink."""
    return f"""\
[superlink]
default = "{link}"

[superlink.{link}]
address = "{address}"
root-certificates = "{root}"
"""


def script(environment: Mapping[str, str], command: str) -> str:
    """A start script for one process."""
    exports = "\n".join(
        f"export {name}={shlex.quote(value)}" for name, value in environment.items()
    )
    about = "# Telemetry, update checks and installing at run time are off."
    return f"#!/bin/sh\n{about}\n{exports}\nexec {command}\n"


def unit(process: str, start: Path) -> str:
    """A systemd unit for one process."""
    return f"""\
[Unit]
Description=veilmap federation: {process}
After=network-online.target
Wants=network-online.target

[Service]
ExecStart={start}
Restart=on-failure
RestartSec=5
# A user of its own, who may read only what this process needs.
User=veilmap
NoNewPrivileges=true
PrivateTmp=true

[Install]
WantedBy=multi-user.target
"""
