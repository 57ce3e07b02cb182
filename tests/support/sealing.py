"""Files with a checksum, changed by somebody who makes a new one."""

import json

from veilmap._util import files


def reseal(path, **changes):
    """Change fields of a sealed JSON file; the file is whole, whatever its content now says."""
    content = json.loads(path.read_text())
    content.pop("checksum", None)
    files.write_json(content | changes, path, sealed=True)
