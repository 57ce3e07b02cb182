"""Write the page's TypeScript types from the description of the API (OpenAPI)."""

import json
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veilmap.web.app import create_app
from veilmap.web.files import STATIC
from veilmap.web.jobs import Jobs
from veilmap.web.library import Library
from veilmap.web.service import Service

TYPES = STATIC / "types.d.ts"

_HEAD = "/** What the server takes and answers with: written by page/write_types.py. */\n"
_LEAST_SHARED = 5  # fields of an interface that others extend
_PLAIN = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean",
          "null": "null"}  # fmt: skip


def description() -> dict[str, Any]:
    """The API as the server describes it."""
    with tempfile.TemporaryDirectory() as work:
        return create_app(Service(Library([], None, Path(work)), Jobs(Path(work)))).openapi()


def types(api: Mapping[str, Any]) -> str:
    """An interface for each object of an API."""
    schemas = api["components"]["schemas"]
    return _HEAD + "".join(_interface(name, schemas) for name in sorted(schemas))


def _interface(name: str, schemas: Mapping[str, Any]) -> str:
    """One interface; what repeats all fields of a larger other one extends it."""
    schema, base = schemas[name], _base(name, schemas)
    inherited = schemas[base]["properties"] if base else {}
    lines = []
    for field, one in schema["properties"].items():
        mark = "" if field in schema.get("required", ()) else "?"
        if field not in inherited:
            lines.append(f"{_comment(one, '  ')}  {field}{mark}: {_type(one)};\n")
    extends = f" extends {base}" if base else ""
    return f"\n{_comment(schema)}export interface {name}{extends} {{\n{''.join(lines)}}}\n"


def _base(name: str, schemas: Mapping[str, Any]) -> str | None:
    own = schemas[name]["properties"]
    for other, schema in schemas.items():
        fields = schema["properties"]
        same = all(f in own and _type(own[f]) == _type(one) for f, one in fields.items())
        if same and _LEAST_SHARED <= len(fields) < len(own):
            return other
    return None


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
