"""Write the page's TypeScript types from the description of the API (OpenAPI)."""

import json
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veilmap.web.app import STATIC, create_app
from veilmap.web.jobs import Jobs
from veilmap.web.library import Library
from veilmap.web.service import Desk

TYPES = STATIC / "types.d.ts"

_HEAD = "/** What the server takes and answers with: written by page/write_types.py. */\n"
_PLAIN = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean",
          "null": "null"}  # fmt: skip


def description() -> dict[str, Any]:
    """The API as the server describes it."""
    with tempfile.TemporaryDirectory() as work:
        return create_app(Desk(Library([], None, Path(work)), Jobs(Path(work)))).openapi()


def types(api: Mapping[str, Any]) -> str:
    """An interface for each object of an API."""
    schemas = api["components"]["schemas"]
    return _HEAD + "".join(_interface(name, schemas[name]) for name in sorted(schemas))


def _interface(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    lines = []
    for field, one in schema["properties"].items():
        mark = "" if field in required else "?"
        lines.append(f"{_comment(one, '  ')}  {field}{mark}: {_type(one)};\n")
    return f"\n{_comment(schema)}export interface {name} {{\n{''.join(lines)}}}\n"


def _comment(schema: Mapping[str, Any], indent: str = "") -> str:
    words = " ".join(schema.get("description", "").split())
    if not words:
        return ""
    lines = textwrap.wrap(words, 90)
    if len(lines) == 1:
        return f"{indent}/** {lines[0]} */\n"
    body = "".join(f"{indent} * {line}\n" for line in lines)
    return f"{indent}/**\n{body}{indent} */\n"


def _type(schema: Mapping[str, Any]) -> str:
    """A type of TypeScript; what is not known here is an error, not ``any``."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    if "prefixItems" in schema:
        return f"[{', '.join(_type(one) for one in schema['prefixItems'])}]"
    if schema["type"] == "array":
        inner = _type(schema["items"])
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    if schema["type"] == "object":
        return f"Record<string, {_type(schema['additionalProperties'])}>"
    return _PLAIN[schema["type"]]


if __name__ == "__main__":
    TYPES.write_text(types(description()))
